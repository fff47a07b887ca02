#include "server/engine/cache_maker.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "server/base/notification.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/awaited.h"
#include "tests/unit/engine/kv_cache/store_fixture.h"

namespace ridgeline::engine {
namespace {

using kv_cache::CacheInfo;
using support::StatusIs;

using Answer = Awaited<absl::StatusOr<CacheInfo>>;

// Arenas come when Deliver is called.
class CacheMakerTest : public kv_cache::StoreFixture {
 protected:
  void SetUp() override {
    store_ = std::make_unique<kv_cache::KvCacheStore>(
        kv_cache::KvCacheOptions{.instance_id = "instance-1"},
        [this](std::int64_t size_bytes) {
          maker_thread_ = std::this_thread::get_id();
          if (!is_asked_.HasBeenNotified()) is_asked_.Notify();
          delivered_.WaitWithTimeout(absl::Minutes(1));
          ++num_arenas_;
          return arenas_.Allocate(size_bytes);
        },
        clock_);
    maker_ = std::make_unique<CacheMaker>(*store_);
  }
  void TearDown() override { Deliver(); }

  std::shared_ptr<Call> Make(const std::string& id, const Answer& answer) {
    return maker_->Make({.origin = {.request_id = "test"}, .caller = alice_},
                        {.cache_id = id, .geometry = kv_cache::SmallGeometry(4)}, Answer(answer).Callback());
  }

  void AwaitAsked() { ASSERT_TRUE(is_asked_.WaitWithTimeout(absl::Minutes(1))); }

  void Deliver() {
    if (!delivered_.HasBeenNotified()) delivered_.Notify();
  }

  base::Notification is_asked_;  // by the first cache
  base::Notification delivered_;
  std::thread::id maker_thread_;
  std::atomic<int> num_arenas_{0};
  std::unique_ptr<CacheMaker> maker_;
};

TEST_F(CacheMakerTest, AnswersWhenTheArenaIsThere) {
  const Answer answer;
  EXPECT_NE(Make("c", answer), nullptr);
  AwaitAsked();
  EXPECT_NE(maker_thread_, std::this_thread::get_id());
  EXPECT_FALSE(answer.arrived());
  Deliver();
  ASSERT_OK(answer.Wait());
  EXPECT_EQ(answer.Wait()->name, "kvCaches/c");
  EXPECT_OK(store_->GetCache(alice_, "kvCaches/c"));
}

TEST_F(CacheMakerTest, SaysWhyNot) {
  Deliver();
  arenas_.set_fails(true);
  const Answer answer;
  Make("c", answer);
  EXPECT_THAT(answer.Wait(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(base::ErrorReason(answer.Wait().status()), base::kReasonOutOfMemory);
}

TEST_F(CacheMakerTest, OneOfTwoGetsAName) {
  const Answer first, second;
  Make("c", first);
  Make("c", second);
  Deliver();
  EXPECT_OK(first.Wait());
  EXPECT_THAT(second.Wait(), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(CacheMakerTest, FewWait) {
  constexpr int kMany = 100;
  std::vector<Answer> own;
  int num_refused = 0;
  for (int i = 0; i < kMany; ++i) {
    own.emplace_back();
    if (Make(absl::StrCat("c", i), own[i]) != nullptr) continue;
    ++num_refused;
    ASSERT_TRUE(own[i].arrived());
    EXPECT_EQ(base::ErrorReason(own[i].Wait().status()), base::kReasonQueueFull);
    EXPECT_TRUE(base::RetryDelay(own[i].Wait().status()).has_value());
  }
  EXPECT_GT(num_refused, kMany / 2);
  Deliver();
  for (const Answer& answer : own) answer.Wait();
  EXPECT_EQ(store_->statistics().caches, kMany - num_refused);
}

TEST_F(CacheMakerTest, WhatIsCancelledWhileItWaitsIsNotMade) {
  const Answer first, second;
  Make("first", first);
  AwaitAsked();
  const std::shared_ptr<Call> call = Make("second", second);
  call->Cancel();
  ASSERT_TRUE(second.arrived());
  EXPECT_THAT(second.Wait(), StatusIs(absl::StatusCode::kCancelled));
  call->Cancel();  // changes nothing
  Deliver();
  EXPECT_OK(first.Wait());
  maker_.reset();
  EXPECT_EQ(num_arenas_, 1);
  EXPECT_THAT(store_->GetCache(alice_, "kvCaches/second"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(CacheMakerTest, WhatIsCancelledWhileItIsMadeIsDeleted) {
  const Answer answer;
  const std::shared_ptr<Call> call = Make("c", answer);
  AwaitAsked();
  call->Cancel();
  ASSERT_TRUE(answer.arrived());
  EXPECT_THAT(answer.Wait(), StatusIs(absl::StatusCode::kCancelled));
  Deliver();
  maker_.reset();
  EXPECT_EQ(num_arenas_, 1);
  EXPECT_EQ(arenas_.num_live(), 0);
  EXPECT_EQ(store_->statistics().caches, 0);
}

TEST_F(CacheMakerTest, CancelComesTooLateForACacheThatIsThere) {
  Deliver();
  const Answer answer;
  const std::shared_ptr<Call> call = Make("c", answer);
  ASSERT_OK(answer.Wait());
  call->Cancel();
  EXPECT_OK(store_->GetCache(alice_, "kvCaches/c"));
}

}  // namespace
}  // namespace ridgeline::engine
