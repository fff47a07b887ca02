#include "server/engine/access_order.h"

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/engine/made_up_work.h"

namespace ridgeline::engine {
namespace {

constexpr bool kReads = false, kWrites = true;

class AccessOrderTest : public ::testing::Test {
 protected:
  std::shared_ptr<Task> Enter(std::vector<Access> accesses) {
    std::shared_ptr<Task> task = MakeTask({.accesses = std::move(accesses)});
    order_.Enter(*task);
    return task;
  }

  AccessOrder order_;
};

TEST_F(AccessOrderTest, WritersComeOneAfterTheOther) {
  const auto first = Enter({{1, kWrites}}), second = Enter({{1, kWrites}}), third = Enter({{1, kWrites}});
  EXPECT_EQ(first->num_ahead, 0);
  EXPECT_EQ(second->num_ahead, 1);
  EXPECT_EQ(third->num_ahead, 2);
  order_.Leave(*first);
  EXPECT_EQ(second->num_ahead, 0);
  EXPECT_EQ(third->num_ahead, 1);
}

TEST_F(AccessOrderTest, ReadersShareButPassNoWriter) {
  const auto reader = Enter({{1, kReads}}), second_reader = Enter({{1, kReads}});
  const auto writer = Enter({{1, kWrites}});
  const auto late_reader = Enter({{1, kReads}});
  EXPECT_EQ(reader->num_ahead, 0);
  EXPECT_EQ(second_reader->num_ahead, 0);
  EXPECT_EQ(writer->num_ahead, 2);
  EXPECT_EQ(late_reader->num_ahead, 1);
  order_.Leave(*second_reader);
  order_.Leave(*reader);
  EXPECT_EQ(writer->num_ahead, 0);
  order_.Leave(*writer);
  EXPECT_EQ(late_reader->num_ahead, 0);
}

TEST_F(AccessOrderTest, OneWhoGivesUpInTheMiddleHoldsNobodyBack) {
  const auto first = Enter({{1, kWrites}}), second = Enter({{1, kWrites}}), third = Enter({{1, kWrites}});
  order_.Leave(*second);
  EXPECT_EQ(first->num_ahead, 0);
  EXPECT_EQ(third->num_ahead, 1);
}

TEST_F(AccessOrderTest, SeveralThingsAreWaitedForTogether) {
  const auto one = Enter({{1, kWrites}}), two = Enter({{2, kReads}}), both = Enter({{1, kReads}, {2, kWrites}});
  const auto other = Enter({{3, kWrites}});
  EXPECT_EQ(both->num_ahead, 2);
  EXPECT_EQ(other->num_ahead, 0);
  order_.Leave(*two);
  EXPECT_EQ(both->num_ahead, 1);
  order_.Leave(*one);
  EXPECT_EQ(both->num_ahead, 0);
}

TEST_F(AccessOrderTest, NobodyWaitsForItself) {
  const auto first = Enter({{1, kWrites}, {1, kWrites}});
  const auto second = Enter({{1, kWrites}, {1, kWrites}});
  EXPECT_EQ(first->num_ahead, 0);
  EXPECT_GT(second->num_ahead, 0);
  order_.Leave(*first);
  EXPECT_EQ(second->num_ahead, 0);
}

TEST_F(AccessOrderTest, RemembersNothingOfTheGone) {
  const auto task = Enter({{1, kWrites}, {2, kReads}});
  EXPECT_FALSE(order_.empty());
  order_.Leave(*task);
  EXPECT_TRUE(order_.empty());
}

}  // namespace
}  // namespace ridgeline::engine
