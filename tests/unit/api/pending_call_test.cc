#include "server/api/pending_call.h"

#include <memory>

#include "gtest/gtest.h"

namespace ridgeline::api {
namespace {

class FakeCall : public engine::Call {
 public:
  void Cancel() override { ++num_cancels; }
  int num_cancels = 0;
};

TEST(PendingCallTest, CancelsTheCallUnderWay) {
  PendingCall pending;
  const auto call = std::make_shared<FakeCall>();
  pending.Start([&] { return call; });
  EXPECT_EQ(call->num_cancels, 0);
  pending.Cancel();
  EXPECT_EQ(call->num_cancels, 1);
}

TEST(PendingCallTest, LeavesAnAnsweredCallAlone) {
  PendingCall pending;
  const auto call = std::make_shared<FakeCall>();
  pending.Start([&] { return call; });
  pending.Answered();
  EXPECT_EQ(call.use_count(), 1) << "it lets go of it";
  pending.Cancel();
  EXPECT_EQ(call->num_cancels, 0);
}

TEST(PendingCallTest, CancelsWhatIsStartedLater) {
  PendingCall pending;
  pending.Cancel();
  const auto call = std::make_shared<FakeCall>();
  pending.Start([&] { return call; });
  EXPECT_EQ(call->num_cancels, 1);
}

TEST(PendingCallTest, ARefusedCallIsNoCall) {
  PendingCall pending;
  pending.Start([&] {
    pending.Answered();
    return nullptr;
  });
  pending.Cancel();
}

// The answer to the first comes before its Start has returned, and starts the second.
TEST(PendingCallTest, AnAnswerMayStartTheNextCall) {
  PendingCall pending;
  const auto first = std::make_shared<FakeCall>();
  const auto second = std::make_shared<FakeCall>();
  pending.Start([&] {
    pending.Answered();
    pending.Start([&] { return second; });
    return first;
  });
  pending.Cancel();
  EXPECT_EQ(first->num_cancels, 0);
  EXPECT_EQ(second->num_cancels, 1);
}

}  // namespace
}  // namespace ridgeline::api
