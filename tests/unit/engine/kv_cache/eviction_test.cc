// Which sequences go when a cache is full, and what is said afterwards.

#include "server/engine/kv_cache/eviction.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "server/base/error.h"
#include "tests/unit/engine/kv_cache/store_fixture.h"

namespace ridgeline::engine::kv_cache {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class EvictionTest : public StoreFixture {
 protected:
  // Sequences of so many pages each.
  void Fill(const std::vector<std::string>& ids, std::int64_t pages = 1) {
    for (const std::string& id : ids) {
      Create(id);
      ASSERT_OK(Append(id, 0, Range(0, 4 * pages)));
    }
  }

  std::string ReasonOf(const std::string& id) { return base::ErrorReason(store_->GetSequence(alice_, NameOf(id)).status()); }
};

TEST_F(EvictionTest, TheLeastRecentlyUsedGoesWhole) {
  BuildWithCache(6, EvictionPolicy::kLeastRecentlyUsed);
  Fill({"a", "b", "c"}, 2);
  EXPECT_EQ(Read("a", 0), Range(0, 8));  // a use: b is the oldest now
  Fill({"d"});
  EXPECT_EQ(ReasonOf("b"), base::kReasonSequenceEvicted);
  EXPECT_EQ(Read("a", 0), Range(0, 8));
  EXPECT_EQ(Read("c", 0), Range(0, 8));
  EXPECT_EQ(UsedPages(), 5);
  ASSERT_OK_AND_ASSIGN(const CacheInfo cache, store_->GetCache(alice_, "kvCaches/c"));
  EXPECT_EQ(cache.evicted_sequences, 1);
  EXPECT_EQ(cache.sequences, 3);
}

TEST_F(EvictionTest, EveryNextUseSaysThatItWasEvicted) {
  BuildWithCache(1, EvictionPolicy::kLeastRecentlyUsed);
  Fill({"a", "b"});
  EXPECT_THAT(Append("a", 0, {1}), StatusIs(absl::StatusCode::kNotFound, HasSubstr("evicted")));
  EXPECT_EQ(base::ErrorReason(store_->ForkSequence(alice_, NameOf("a"), "x").status()), base::kReasonSequenceEvicted);
  EXPECT_EQ(base::ErrorReason(store_->DeleteSequence(alice_, NameOf("a"))), base::kReasonSequenceEvicted);
  EXPECT_EQ(base::ErrorReason(store_->TruncateSequence(alice_, NameOf("a"), 0).status()), base::kReasonSequenceEvicted);
  Create("a");
  EXPECT_EQ(ReasonOf("a"), "");
  ASSERT_OK(store_->DeleteSequence(alice_, NameOf("a")));
  EXPECT_EQ(ReasonOf("a"), base::kReasonSequenceNotFound);
}

TEST_F(EvictionTest, WorkThatWaitsLearnsOfIt) {
  BuildWithCache(1, EvictionPolicy::kLeastRecentlyUsed);
  Fill({"a"});
  ASSERT_OK_AND_ASSIGN(const auto selection, Select({"a"}, 0));
  Fill({"b"});
  EXPECT_EQ(base::ErrorReason(store_->Begin(*selection).status()), base::kReasonSequenceEvicted);
}

TEST_F(EvictionTest, WhatIsInUseStays) {
  BuildWithCache(3, EvictionPolicy::kLeastRecentlyUsed);
  Fill({"a", "b", "c"});
  const auto use = Begin({"a"}, 0);
  Fill({"d"});
  EXPECT_EQ(ReasonOf("a"), "");
  EXPECT_EQ(ReasonOf("b"), base::kReasonSequenceEvicted);
}

TEST_F(EvictionTest, AMemberIsNotEvictedForAnother) {
  BuildWithCache(2, EvictionPolicy::kLeastRecentlyUsed);
  Fill({"a", "b"});
  EXPECT_EQ(base::ErrorReason(Begin({"a", "b"}, 0, {0, 1}).status()), base::kReasonKvCacheFull);
  EXPECT_EQ(Read("a", 0), Range(0, 4));
  ASSERT_OK(Append("b", 0, {4}));
  EXPECT_EQ(ReasonOf("a"), base::kReasonSequenceEvicted);
}

TEST_F(EvictionTest, NothingGoesIfItWouldNotDo) {
  BuildWithCache(4, EvictionPolicy::kLeastRecentlyUsed);
  Fill({"a", "b", "c"});
  const auto use = Begin({"c"}, 0);
  Create("d");
  const absl::Status status = Append("d", 0, Range(0, 16));
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kResourceExhausted, AllOf(HasSubstr("4 pages are needed"), HasSubstr("1 of 4"))));
  EXPECT_EQ(ReasonOf("a"), "");
  EXPECT_EQ(ReasonOf("b"), "");
}

TEST_F(EvictionTest, SharedPagesAreFreeWhenAllRelativesGo) {
  BuildWithCache(4, EvictionPolicy::kLeastRecentlyUsed);
  Fill({"a"}, 3);
  Fork("a", "b");
  Fill({"c"});
  Fill({"d"}, 2);
  EXPECT_EQ(ReasonOf("a"), base::kReasonSequenceEvicted);
  EXPECT_EQ(ReasonOf("b"), base::kReasonSequenceEvicted);
  EXPECT_EQ(ReasonOf("c"), "");
}

TEST_F(EvictionTest, WhoseGoingFreesNothingStays) {
  BuildWithCache(4, EvictionPolicy::kLeastRecentlyUsed);
  Fill({"a"}, 2);
  Fork("a", "b");
  Create("empty");
  Fill({"c"}, 2);
  const auto use = Begin({"b"}, 0);  // keeps the pages that a shares
  Fill({"d"});
  EXPECT_EQ(ReasonOf("a"), "");
  EXPECT_EQ(ReasonOf("empty"), "");
  EXPECT_EQ(ReasonOf("c"), base::kReasonSequenceEvicted);
}

TEST_F(EvictionTest, AnEvictionMaySpareACopy) {
  BuildWithCache(1, EvictionPolicy::kLeastRecentlyUsed);
  Create("a");
  ASSERT_OK(Append("a", 0, Range(0, 2)));
  Fork("a", "b");
  ASSERT_OK(Append("a", 0, {2}));  // no page for a copy, none needed without b
  EXPECT_EQ(ReasonOf("b"), base::kReasonSequenceEvicted);
  EXPECT_EQ(Read("a", 0), Range(0, 3));
  EXPECT_EQ(store_->statistics().copied_pages, 0);
}

TEST_F(EvictionTest, TransfersAreNotEvicted) {
  BuildWithCache(2, EvictionPolicy::kLeastRecentlyUsed);
  Fill({"a"});
  const auto transfer = store_->BeginExport(alice_, NameOf("a"));
  Fill({"b"});
  Create("c");
  ASSERT_OK(Append("c", 0, {1}));
  EXPECT_EQ(ReasonOf("a"), "");
  EXPECT_EQ(ReasonOf("b"), base::kReasonSequenceEvicted);
}

TEST_F(EvictionTest, StatisticsOutliveTheirCaches) {
  BuildWithCache(1, EvictionPolicy::kLeastRecentlyUsed);
  Fill({"a", "b"});
  ASSERT_OK(store_->DeleteCache(alice_, "kvCaches/c"));
  EXPECT_EQ(store_->statistics().evicted_sequences, 1);
}

}  // namespace
}  // namespace ridgeline::engine::kv_cache
