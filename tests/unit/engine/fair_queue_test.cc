#include "server/engine/fair_queue.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::engine {
namespace {

using ::testing::ElementsAre;

class FairQueueTest : public ::testing::Test {
 protected:
  FairPlace Push(const std::string& client, const std::string& item) { return queue_.Push(client, next_ticket_++, item); }
  std::string Take() { return queue_.Take(queue_.items().begin()); }
  std::vector<std::string> TakeAll() {
    std::vector<std::string> items;
    while (!queue_.empty()) items.push_back(Take());
    return items;
  }

  FairQueue<std::string> queue_;
  std::uint64_t next_ticket_ = 0;
};

TEST_F(FairQueueTest, OfOneClientFirstComeFirstServed) {
  for (const char* item : {"1", "2", "3"}) Push("a", item);
  EXPECT_THAT(TakeAll(), ElementsAre("1", "2", "3"));
}

TEST_F(FairQueueTest, ClientsTakeTurns) {
  for (const char* item : {"a1", "a2", "a3"}) Push("a", item);
  for (const char* item : {"b1", "b2"}) Push("b", item);
  Push("c", "c1");
  EXPECT_THAT(TakeAll(), ElementsAre("a1", "b1", "c1", "a2", "b2", "a3"));
}

TEST_F(FairQueueTest, OneWhoComesLateIsBehindNobodysThousand) {
  for (int i = 0; i < 1000; ++i) Push("a", absl::StrCat("a", i));
  for (int i = 0; i < 500; ++i) Take();
  Push("b", "b");
  Take();  // of the round that had begun
  EXPECT_EQ(Take(), "b");
}

// Many clients with one call each, which comes again as soon as it is served, against one with a long line.
TEST_F(FairQueueTest, WhoComesAgainAtOnceDoesNotPassWhoWaits) {
  constexpr int kClients = 100;
  for (int i = 0; i < 10; ++i) Push("patient", "patient");
  for (int i = 0; i < kClients; ++i) Push(absl::StrCat("busy", i), absl::StrCat("busy", i));
  int served = 0;
  for (int i = 0; i < 5 * (kClients + 1); ++i) {
    const std::string item = Take();
    if (item == "patient") {
      ++served;
    } else {
      Push(item, item);
    }
  }
  EXPECT_EQ(served, 5);
}

TEST_F(FairQueueTest, WhatComesBackTakesItsOldPlace) {
  const FairPlace place = Push("a", "a1");
  Push("a", "a2");
  Push("b", "b1");
  ASSERT_EQ(Take(), "a1");
  queue_.PushBack(place, "a1");
  EXPECT_THAT(TakeAll(), ElementsAre("a1", "b1", "a2"));
}

TEST_F(FairQueueTest, AnyItemCanBeTaken) {
  Push("a", "a1");
  const FairPlace place = Push("a", "a2");
  Push("a", "a3");
  EXPECT_EQ(queue_.Take(queue_.Find(place)), "a2");
  EXPECT_EQ(queue_.Find(place), queue_.items().end());
  EXPECT_THAT(TakeAll(), ElementsAre("a1", "a3"));
}

TEST_F(FairQueueTest, ForgetsClientsThatAreGone) {
  Push("old", "old");
  for (int i = 0; i < 1000; ++i) {
    Push("old", "old");
    Push(absl::StrCat("new", i), "new");
    Take();
    Take();
  }
  EXPECT_LT(queue_.num_clients_known(), 10u);
}

}  // namespace
}  // namespace ridgeline::engine
