// Draining with KV caches: they are served, nothing else is, and it is over when the last has gone.
#include <atomic>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/fuse_requests.h"
#include "tests/unit/engine/paged_fixture.h"

namespace ridgeline::engine {
namespace {

using support::IsOk;
using support::StatusIs;

class SessionDrainTest : public PagedFixture {};

TEST_F(SessionDrainTest, ServesTheCachesThatThereAreAndNothingElse) {
  BuildCache();
  const std::string name = MakeSequence("a", 5);
  std::atomic<bool> is_drained{false};
  std::thread drain([&] { is_drained = engine_->DrainSessions(absl::Minutes(1)); });
  while (!engine_->load().draining) std::this_thread::yield();

  const Answer dense;
  Attend(dense);
  EXPECT_THAT(dense.Wait(), StatusIs(absl::StatusCode::kUnavailable));
  FuseAnswer fused;
  engine_->Fuse(SmallFuseRequest(), {.origin = {.request_id = "test"}}, fused.Callback());
  EXPECT_THAT(fused.Wait(), StatusIs(absl::StatusCode::kUnavailable));
  Awaited<absl::StatusOr<kv_cache::CacheInfo>> made;
  engine_->CreateKvCache(CacheRequest("more", 4), {.origin = {.request_id = "test"}}, made.Callback());
  EXPECT_THAT(made.Wait(), StatusIs(absl::StatusCode::kUnavailable));

  Fill(name, 0, 3);
  EXPECT_TRUE(ExportsAs(*engine_, name, model_.sequence(name)));
  EXPECT_FALSE(is_drained);
  EXPECT_THAT(engine_->kv_caches().DeleteCache({}, "kvCaches/c"), IsOk());
  drain.join();
  EXPECT_TRUE(is_drained);
}

TEST_F(SessionDrainTest, IsOverWhenTheLastLeaseIs) {
  BuildCache();
  clock_.Advance(kv_cache::kLongestLease);
  EXPECT_TRUE(engine_->DrainSessions(absl::Minutes(1)));
}

TEST_F(SessionDrainTest, IsOverWhenTimeIsUp) {
  BuildCache();
  EXPECT_FALSE(engine_->DrainSessions(absl::ZeroDuration()));
  EXPECT_TRUE(engine_->load().draining);
}

}  // namespace
}  // namespace ridgeline::engine
