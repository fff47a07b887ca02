#include "client/cpp/stream_threads.h"

#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace ridgeline::client {
namespace {

TEST(StreamThreadsTest, ThereAreFewThreadsAndStreamsAreSpreadOverThem) {
  static StreamThreads& threads = *new StreamThreads;  // never goes, as StreamThreads::Get
  std::vector<StreamThreads::Thread*> joined;
  const auto num_threads = [&joined] { return std::set(joined.begin(), joined.end()).size(); };
  for (int i = 0; i < 32; ++i) joined.push_back(threads.Join());
  EXPECT_EQ(num_threads(), 1u);
  for (int i = 0; i < 1000; ++i) joined.push_back(threads.Join());
  EXPECT_EQ(num_threads(), 4u);
  for (StreamThreads::Thread* thread : joined) {
    ASSERT_NE(thread, nullptr);
    EXPECT_EQ(thread->num_streams, 1032 / 4);
  }
  for (StreamThreads::Thread* thread : joined) threads.Leave(*thread);
  for (StreamThreads::Thread* thread : joined) EXPECT_EQ(thread->num_streams, 0);
}

}  // namespace
}  // namespace ridgeline::client
