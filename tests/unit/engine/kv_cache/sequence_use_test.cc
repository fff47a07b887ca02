// Selections and uses: what may run side by side, what a use takes, and what is left when it ends.

#include "server/engine/kv_cache/sequence_use.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "server/base/error.h"
#include "tests/unit/engine/kv_cache/store_fixture.h"

namespace ridgeline::engine::kv_cache {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class SequenceUseTest : public StoreFixture {
 protected:
  // A use that has begun; null if it has not.
  std::unique_ptr<SequenceUse> MustBegin(const std::vector<std::string>& ids, std::int64_t layer,
                                         std::vector<std::int64_t> append_tokens = {}) {
    auto use = Begin(ids, layer, std::move(append_tokens));
    EXPECT_OK(use);
    return use.ok() ? *std::move(use) : nullptr;
  }

  bool Waits(const std::vector<std::string>& ids, std::int64_t layer, std::vector<std::int64_t> append_tokens = {}) {
    const auto use = Begin(ids, layer, std::move(append_tokens));
    EXPECT_OK(use);
    return use.ok() && *use == nullptr;
  }

  std::string ReasonOfBegin(const std::vector<std::string>& ids, std::vector<std::int64_t> append_tokens) {
    return base::ErrorReason(Begin(ids, 0, std::move(append_tokens)).status());
  }
};

// ---- Selections -------------------------------------------------------------------------------------------------------------

TEST_F(SequenceUseTest, ASelectionSaysWhatToExpect) {
  BuildWithCache(8);
  Create("a");
  Create("b");
  ASSERT_OK(Append("b", 1, Range(0, 5)));
  ASSERT_OK_AND_ASSIGN(const auto selection, Select({"a", "b"}, 1, {2, 0}));
  EXPECT_EQ(selection->size(), 2u);
  EXPECT_EQ(selection->layer(), 1);
  EXPECT_EQ(selection->expected_tokens(0), 0);
  EXPECT_EQ(selection->expected_tokens(1), 5);
  EXPECT_EQ(selection->append_tokens(0), 2);
  EXPECT_EQ(selection->append_tokens(1), 0);
  EXPECT_EQ(selection->geometry().page_tokens, 4);
}

TEST_F(SequenceUseTest, ASelectionIsOfOneCacheAndNamesEachOnce) {
  BuildWithCache(8);
  Create("a");
  Create("b");
  const auto field_and_status = [&](std::vector<std::string> names, std::int64_t layer) {
    const absl::Status status =
        store_->Select(alice_, {.sequences = std::move(names), .layer = layer, .layer_field = "layer"}).status();
    return std::make_pair(base::ErrorField(status).value_or(""), status);
  };
  EXPECT_EQ(field_and_status({}, 0).first, "paged.sequences");
  EXPECT_EQ(field_and_status({NameOf("a"), "b"}, 0).first, "paged.sequences[1]");
  const auto twice = field_and_status({NameOf("a"), NameOf("b"), NameOf("a")}, 0);
  EXPECT_EQ(twice.first, "paged.sequences[2]");
  EXPECT_THAT(twice.second, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("once")));
  const auto mixed = field_and_status({NameOf("a"), "kvCaches/d/sequences/b"}, 0);
  EXPECT_EQ(mixed.first, "paged.sequences[1]");
  EXPECT_THAT(mixed.second,
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("kvCaches/c"), HasSubstr("kvCaches/d"))));
  EXPECT_EQ(field_and_status({NameOf("a")}, 2).first, "layer");
  EXPECT_THAT(field_and_status({NameOf("a")}, -1).second, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 to 1")));
  EXPECT_EQ(base::ErrorReason(Select({"a", "x"}, 0).status()), base::kReasonSequenceNotFound);
  EXPECT_OK(store_->DeleteCache(alice_, "kvCaches/c")) << "a refused selection holds nothing";
}

TEST_F(SequenceUseTest, WorksOfOneLaunchAreKnownByTheirCache) {
  BuildWithCache(8);
  Create("a");
  Create("b");
  const std::uint64_t uid = (*Select({"a"}, 0))->cache_uid();
  EXPECT_EQ((*Select({"b"}, 1))->cache_uid(), uid);
  ASSERT_OK(store_->DeleteCache(alice_, "kvCaches/c"));
  ASSERT_OK(store_->CreateCache(alice_, {.cache_id = "c", .geometry = SmallGeometry(8)}));
  Create("a");
  EXPECT_NE((*Select({"a"}, 0))->cache_uid(), uid);
}

TEST_F(SequenceUseTest, WhatWentSinceItWasSelectedIsNotFound) {
  BuildWithCache(8);
  Create("a");
  Create("b");
  ASSERT_OK_AND_ASSIGN(const auto selection, Select({"a", "b"}, 0, {1, 1}));
  ASSERT_OK(store_->DeleteSequence(alice_, NameOf("b")));
  Create("b");  // another one
  const absl::Status status = store_->Begin(*selection).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, HasSubstr(NameOf("b"))));
  EXPECT_EQ(base::ErrorReason(status), base::kReasonSequenceNotFound);
  EXPECT_OK(Append("a", 0, {1})) << "a use that has not begun holds nothing";
}

// ---- What a use takes -------------------------------------------------------------------------------------------------------

TEST_F(SequenceUseTest, TablesAreHeadAndTail) {
  BuildWithCache(16);
  Create("a");
  ASSERT_OK(Append("a", 0, Range(0, 10)));
  const auto use = MustBegin({"a"}, 0, {5});
  ASSERT_NE(use, nullptr);
  const UsedSequence& used = use->sequences()[0];
  EXPECT_EQ(used.begin_tokens, 10);
  EXPECT_EQ(used.end_tokens, 15);
  EXPECT_THAT(used.table_head, SizeIs(2));
  EXPECT_THAT(used.table_tail, SizeIs(2));
  EXPECT_THAT(use->page_copies(), IsEmpty());
}

TEST_F(SequenceUseTest, AReadSeesTheLayersOwnPages) {
  BuildWithCache(16);
  Create("a");
  ASSERT_OK(Append("a", 0, Range(0, 10)));
  ASSERT_OK(Append("a", 1, Range(0, 3)));
  const auto use = MustBegin({"a"}, 1);
  ASSERT_NE(use, nullptr);
  EXPECT_THAT(use->sequences()[0].table_head, SizeIs(1));
  EXPECT_THAT(use->sequences()[0].table_tail, IsEmpty());
  EXPECT_EQ(use->sequences()[0].end_tokens, 3);
}

TEST_F(SequenceUseTest, ALayerThatLagsBehindWritesInPlace) {
  BuildWithCache(16);
  Create("a");
  ASSERT_OK(Append("a", 0, Range(0, 10)));
  const auto use = MustBegin({"a"}, 1, {10});
  ASSERT_NE(use, nullptr);
  EXPECT_THAT(use->sequences()[0].table_head, IsEmpty());
  EXPECT_THAT(use->sequences()[0].table_tail, SizeIs(3));
  EXPECT_EQ(UsedPages(), 3);
}

TEST_F(SequenceUseTest, OnlySharedPagesThatAreWrittenAreCopied) {
  BuildWithCache(16);
  Create("a");
  ASSERT_OK(Append("a", 0, Range(0, 10)));
  ASSERT_OK(Append("a", 1, Range(50, 5)));
  Fork("a", "b");
  const auto use = MustBegin({"b"}, 1, {4});  // tokens 5 to 8: pages 1 and 2
  ASSERT_NE(use, nullptr);
  EXPECT_THAT(use->page_copies(), SizeIs(2));
  EXPECT_EQ(use->page_copies()[0].destination, use->sequences()[0].table_tail[0]);
  EXPECT_EQ(UsedPages(), 5);
  CopyPages(*use);
  WriteTokens(*use, 0, Range(90, 4));
  use->Commit();
  EXPECT_EQ(Read("a", 0), Range(0, 10));
  EXPECT_EQ(Read("b", 0), Range(0, 10));
  EXPECT_EQ(Read("a", 1), Range(50, 5));
  EXPECT_EQ(Read("b", 1), (Tokens{50, 51, 52, 53, 54, 90, 91, 92, 93}));
}

TEST_F(SequenceUseTest, AFullPageIsSharedForGood) {
  BuildWithCache(16);
  Create("a");
  ASSERT_OK(Append("a", 0, Range(0, 8)));
  Fork("a", "b");
  const auto use = MustBegin({"b"}, 0, {1});
  ASSERT_NE(use, nullptr);
  EXPECT_THAT(use->page_copies(), IsEmpty());
  EXPECT_EQ(UsedPages(), 3);
}

TEST_F(SequenceUseTest, AllRowsOrNone) {
  BuildWithCache(3);
  Create("a");
  Create("b");
  ASSERT_OK(Append("a", 0, Range(0, 4)));
  const absl::Status status = Begin({"a", "b"}, 0, {4, 8}).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("3 pages are needed"), HasSubstr("2 of 3 are free"), HasSubstr("evicts nothing"))));
  EXPECT_EQ(base::ErrorReason(status), base::kReasonKvCacheFull);
  EXPECT_EQ(UsedPages(), 1);
  EXPECT_EQ(Read("a", 0), Range(0, 4));
  EXPECT_NE(MustBegin({"a", "b"}, 0, {4, 4}), nullptr);
}

TEST_F(SequenceUseTest, AbsurdLengthsAreFullCaches) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  BuildWithCache(3, EvictionPolicy::kLeastRecentlyUsed);
  Create("a");
  Create("b");
  ASSERT_OK(Append("a", 0, {1}));
  EXPECT_EQ(ReasonOfBegin({"a"}, {kMost}), base::kReasonKvCacheFull);
  EXPECT_EQ(ReasonOfBegin({"a", "b"}, {kMost, kMost}), base::kReasonKvCacheFull);
  EXPECT_EQ(Read("a", 0), Tokens{1});
}

// ---- How it ends ------------------------------------------------------------------------------------------------------------

TEST_F(SequenceUseTest, AnAbortChangesNothing) {
  BuildWithCache(16);
  Create("a");
  ASSERT_OK(Append("a", 0, Range(0, 6)));
  Fork("a", "b");
  auto use = MustBegin({"a", "b"}, 0, {5, 1});
  ASSERT_NE(use, nullptr);
  CopyPages(*use);
  WriteTokens(*use, 0, Range(90, 5));
  WriteTokens(*use, 1, {99});
  EXPECT_GT(UsedPages(), 2);
  use->Abort();
  EXPECT_EQ(UsedPages(), 2);
  EXPECT_EQ(Read("a", 0), Range(0, 6));
  EXPECT_EQ(Read("b", 0), Range(0, 6));
  EXPECT_EQ(store_->statistics().copied_pages, 0);
}

TEST_F(SequenceUseTest, AUseThatIsDroppedIsAborted) {
  BuildWithCache(16);
  Create("a");
  ASSERT_NE(MustBegin({"a"}, 0, {5}), nullptr);
  EXPECT_EQ(UsedPages(), 0);
  EXPECT_FALSE(Waits({"a"}, 0, {1}));
}

TEST_F(SequenceUseTest, ASelectionMayBeginAgain) {
  BuildWithCache(16);
  Create("a");
  ASSERT_OK_AND_ASSIGN(const auto selection, Select({"a"}, 0, {5}));
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(const auto use, store_->Begin(*selection));
    ASSERT_NE(use, nullptr);
    EXPECT_EQ(UsedPages(), 2);
  }
  EXPECT_EQ(UsedPages(), 0);
}

// ---- Side by side -----------------------------------------------------------------------------------------------------------

TEST_F(SequenceUseTest, ReadsShareAndAnAppendIsAlone) {
  BuildWithCache(16);
  Create("a");
  ASSERT_OK(Append("a", 0, Range(0, 6)));
  auto first = MustBegin({"a"}, 0);
  auto second = MustBegin({"a"}, 1, {0});
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(Waits({"a"}, 1, {1}));
  first = nullptr;
  EXPECT_TRUE(Waits({"a"}, 1, {1}));
  second = nullptr;
  auto append = MustBegin({"a"}, 0, {1});
  ASSERT_NE(append, nullptr);
  EXPECT_TRUE(Waits({"a"}, 0));
  EXPECT_TRUE(Waits({"a"}, 1, {1}));
  append->Commit();
  EXPECT_FALSE(Waits({"a"}, 0));
}

TEST_F(SequenceUseTest, WhoWaitsHoldsNothing) {
  BuildWithCache(16);
  Create("a");
  Create("b");
  const auto use = MustBegin({"a"}, 0, {1});
  EXPECT_TRUE(Waits({"b", "a"}, 0, {1, 1}));
  EXPECT_FALSE(Waits({"b"}, 0, {1}));
}

TEST_F(SequenceUseTest, BusySequencesAreNotDeletedNorTruncated) {
  BuildWithCache(16);
  Create("a");
  ASSERT_OK(Append("a", 0, Range(0, 6)));
  for (const std::int64_t appended : {0, 1}) {
    const auto use = MustBegin({"a"}, 0, {appended});
    EXPECT_EQ(base::ErrorReason(store_->DeleteSequence(alice_, NameOf("a"))), base::kReasonSequenceBusy);
    EXPECT_THAT(store_->TruncateSequence(alice_, NameOf("a"), 1), StatusIs(absl::StatusCode::kFailedPrecondition));
  }
  EXPECT_OK(store_->TruncateSequence(alice_, NameOf("a"), 1));
  EXPECT_OK(store_->DeleteSequence(alice_, NameOf("a")));
}

TEST_F(SequenceUseTest, AForkOfABusySequenceHasWhatIsCommitted) {
  BuildWithCache(16);
  Create("a");
  ASSERT_OK(Append("a", 0, Range(0, 6)));
  auto use = MustBegin({"a"}, 0, {4});
  WriteTokens(*use, 0, Range(6, 4));
  Fork("a", "b");
  EXPECT_EQ(Read("b", 0), Range(0, 6));
  // Its last page is being written by a's append: it cannot be copied now.
  EXPECT_TRUE(Waits({"b"}, 0, {1}));
  use->Commit();
  ASSERT_OK(Append("b", 0, {70}));
  EXPECT_EQ(Read("a", 0), Range(0, 10));
  EXPECT_EQ(Read("b", 0), (Tokens{0, 1, 2, 3, 4, 5, 70}));
}

TEST_F(SequenceUseTest, RelativesAppendSideBySide) {
  BuildWithCache(16);
  Create("a");
  ASSERT_OK(Append("a", 0, Range(0, 6)));
  Fork("a", "b");
  auto of_a = MustBegin({"a"}, 0, {1});
  auto of_b = MustBegin({"b"}, 0, {1});
  ASSERT_NE(of_a, nullptr);
  ASSERT_NE(of_b, nullptr);
  for (auto* use : {of_a.get(), of_b.get()}) CopyPages(*use);
  WriteTokens(*of_a, 0, {60});
  WriteTokens(*of_b, 0, {70});
  of_a->Commit();
  of_b->Abort();
  EXPECT_EQ(Read("a", 0), (Tokens{0, 1, 2, 3, 4, 5, 60}));
  EXPECT_EQ(Read("b", 0), Range(0, 6));
  EXPECT_EQ(UsedPages(), 3);
}

}  // namespace
}  // namespace ridgeline::engine::kv_cache
