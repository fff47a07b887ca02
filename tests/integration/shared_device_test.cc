// One device for several daemons, and for more than it holds: neighbours don't disturb each other, and a full device refuses
// with the numbers and serves on.
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/client.h"
#include "client/cpp/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ridgeline/v1/attention.pb.h"
#include "ridgeline/v1/kv_cache.pb.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/integration/random_attend.h"
#include "tests/support/daemon.h"
#include "tests/support/status_matchers.h"

namespace ridgeline {
namespace {

using client::Client;
using integration::CacheRequest;
using integration::Connect;
using integration::DenseRequest;
using integration::Elements;
using integration::RandomTokens;
using support::Daemon;
using support::IsOk;
using support::StatusIs;
using ::testing::HasSubstr;

// Attention that the daemon makes the tensors for; one head of 64.
v1::AttendRequest WithoutOutput(std::int64_t tokens, v1::Algorithm algorithm) {
  v1::AttendRequest request = RandomAttend(tokens, algorithm);
  request.mutable_output()->set_discard(true);
  return request;
}

TEST(SharedDeviceTest, TwoDaemonsGiveEachTheirOwnAnswers) {
  Daemon one, other;
  const Client clients[] = {Connect(one.unix_address()), Connect(other.unix_address())};
  constexpr std::int64_t kTokens = 300;
  std::vector<float> expected[2];
  for (std::uint64_t i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(const v1::AttendResponse alone, clients[i].Attend(DenseRequest(RandomTokens(kTokens, i), kTokens, i)));
    expected[i] = Elements(alone.output());
  }
  EXPECT_NE(expected[0], expected[1]);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&, i = static_cast<std::uint64_t>(caller % 2)] {
      for (int call = 0; call < 20; ++call) {
        const auto answer = clients[i].Attend(DenseRequest(RandomTokens(kTokens, i), kTokens, i));
        ASSERT_THAT(answer.status(), IsOk());
        EXPECT_EQ(Elements(answer->output()), expected[i]);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(SharedDeviceTest, AFullDeviceRefusesWithTheNumbersAndServesOn) {
  Daemon daemon({"--memory_limit_bytes=134217728"});
  const Client client = Connect(daemon.unix_address());
  // Takes 100 MB of 134: float32, two layers, 1536 bytes a page.
  ASSERT_OK_AND_ASSIGN(const v1::KvCache cache, client.CreateKvCache(CacheRequest("large", 65'000)));
  const absl::Status no_cache = client.CreateKvCache(CacheRequest("another", 65'000)).status();
  EXPECT_THAT(no_cache, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(client::ErrorReason(no_cache), "OUT_OF_MEMORY");

  // S takes 44 MB.
  const v1::AttendRequest large = WithoutOutput(3300, v1::ALGORITHM_STANDARD);
  const absl::Status refused = client.Attend(large).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(client::ErrorReason(refused), "OUT_OF_MEMORY");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("MiB"));

  EXPECT_THAT(client.Attend(WithoutOutput(3300, v1::ALGORITHM_FLASH)).status(), IsOk());
  EXPECT_THAT(client.DeleteKvCache(cache.name()), IsOk());
  EXPECT_THAT(client.Attend(large).status(), IsOk());
}

}  // namespace
}  // namespace ridgeline
