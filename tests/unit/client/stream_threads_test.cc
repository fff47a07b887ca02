#include "client/cpp/stream_threads.h"

#include <memory>
#include <set>
#include <vector>

#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"

namespace ridgeline::client {
namespace {

// Never connected.
std::vector<std::shared_ptr<grpc::Channel>> MakeChannels(int number) {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < number; ++i) {
    channels.push_back(grpc::CreateChannel("unix:/none", grpc::InsecureChannelCredentials()));
  }
  return channels;
}

TEST(StreamThreadsTest, StreamsOfAChannelShareAThreadAndChannelsAreSpreadOverAFew) {
  static StreamThreads& threads = *new StreamThreads;  // never goes, as StreamThreads::Get
  const auto channels = MakeChannels(16);
  std::vector<StreamThreads::Thread*> of_channel;
  for (const auto& channel : channels) of_channel.push_back(threads.Join(*channel));
  const std::set<StreamThreads::Thread*> all(of_channel.begin(), of_channel.end());
  EXPECT_EQ(all.count(nullptr), 0u);
  EXPECT_EQ(all.size(), 4u);
  for (const StreamThreads::Thread* thread : all) EXPECT_EQ(thread->num_channels, 4);
  for (int i = 0; i < 100; ++i) {
    for (std::size_t c = 0; c < channels.size(); ++c) EXPECT_EQ(threads.Join(*channels[c]), of_channel[c]);
  }
  for (const StreamThreads::Thread* thread : all) EXPECT_EQ(thread->num_channels, 4);
  for (const auto& channel : channels) {
    for (int i = 0; i < 101; ++i) threads.Leave(*channel);
  }
  for (const StreamThreads::Thread* thread : all) EXPECT_EQ(thread->num_channels, 0);
}

TEST(StreamThreadsTest, AThreadThatIsFreeIsTakenBeforeAnotherStarts) {
  static StreamThreads& threads = *new StreamThreads;
  const auto channels = MakeChannels(2);
  StreamThreads::Thread* const first = threads.Join(*channels[0]);
  threads.Leave(*channels[0]);
  EXPECT_EQ(threads.Join(*channels[1]), first);
  EXPECT_NE(threads.Join(*channels[0]), first);
  for (const auto& channel : channels) threads.Leave(*channel);
}

}  // namespace
}  // namespace ridgeline::client
