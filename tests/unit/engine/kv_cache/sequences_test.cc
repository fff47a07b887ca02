// Sequences of a store: names, lengths, pages, forks, quotas, transfers.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "server/base/error.h"
#include "tests/unit/engine/kv_cache/store_fixture.h"

namespace ridgeline::engine::kv_cache {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using SequencesTest = StoreFixture;

TEST_F(SequencesTest, ANewSequenceIsEmptyAndTakesNoPage) {
  BuildWithCache(8, EvictionPolicy::kNone, {.shared_caches = true});
  ASSERT_OK_AND_ASSIGN(const SequenceInfo made, store_->CreateSequence(bob_, "kvCaches/c", "s"));
  EXPECT_EQ(made.name, NameOf("s"));
  EXPECT_EQ(made.owner, "bob");
  EXPECT_THAT(made.lengths, ElementsAre(0, 0));
  EXPECT_EQ(made.pages, 0);
  EXPECT_EQ(made.create_time, clock_.Now());
  EXPECT_EQ(UsedPages(), 0);
  ASSERT_OK_AND_ASSIGN(const CacheInfo cache, store_->GetCache(alice_, "kvCaches/c"));
  EXPECT_EQ(cache.sequences, 1);
}

TEST_F(SequencesTest, NamesThatAreUnknownTakenOrWrong) {
  BuildWithCache(8);
  Create("s");
  const absl::Status taken = store_->CreateSequence(alice_, "kvCaches/c", "s").status();
  EXPECT_THAT(taken, StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(NameOf("s"))));
  EXPECT_EQ(base::ErrorReason(taken), base::kReasonSequenceExists);
  EXPECT_EQ(base::ErrorReason(store_->ForkSequence(alice_, NameOf("s"), "s").status()), base::kReasonSequenceExists);
  EXPECT_EQ(base::ErrorReason(store_->GetSequence(alice_, NameOf("t")).status()), base::kReasonSequenceNotFound);
  EXPECT_EQ(base::ErrorReason(store_->GetSequence(alice_, "kvCaches/d/sequences/s").status()), base::kReasonKvCacheNotFound);
  EXPECT_EQ(base::ErrorReason(store_->CreateSequence(alice_, "kvCaches/d", "s").status()), base::kReasonKvCacheNotFound);
  EXPECT_EQ(base::ErrorField(store_->CreateSequence(alice_, "c", "s").status()), "parent");
  EXPECT_EQ(base::ErrorField(store_->CreateSequence(alice_, "kvCaches/c", "S").status()), "sequence_id");
  EXPECT_EQ(base::ErrorField(store_->ForkSequence(alice_, NameOf("s"), "S").status()), "sequence_id");
  EXPECT_EQ(base::ErrorField(store_->DeleteSequence(alice_, "s")), "name");
}

TEST_F(SequencesTest, APageIsTakenWhenTheFirstLayerNeedsIt) {
  BuildWithCache(8);
  Create("s");
  ASSERT_OK(Append("s", 1, Range(100, 5)));
  EXPECT_EQ(UsedPages(), 2);
  ASSERT_OK(Append("s", 0, Range(0, 8)));
  EXPECT_EQ(UsedPages(), 2);
  ASSERT_OK(Append("s", 0, {8}));
  EXPECT_EQ(UsedPages(), 3);
  EXPECT_THAT(Info("s").lengths, ElementsAre(9, 5));
  EXPECT_EQ(Info("s").pages, 3);
  EXPECT_EQ(Read("s", 0), Range(0, 9));
  EXPECT_EQ(Read("s", 1), Range(100, 5));
}

TEST_F(SequencesTest, TruncatingActsOnAllLayersAndFreesPages) {
  BuildWithCache(8);
  Create("s");
  ASSERT_OK(Append("s", 0, Range(0, 12)));
  ASSERT_OK(Append("s", 1, Range(100, 6)));
  ASSERT_OK_AND_ASSIGN(SequenceInfo info, store_->TruncateSequence(alice_, NameOf("s"), 9));
  EXPECT_THAT(info.lengths, ElementsAre(9, 6));
  EXPECT_EQ(info.pages, 3);
  ASSERT_OK_AND_ASSIGN(info, store_->TruncateSequence(alice_, NameOf("s"), 4));
  EXPECT_THAT(info.lengths, ElementsAre(4, 4));
  EXPECT_EQ(UsedPages(), 1);
  ASSERT_OK(Append("s", 0, {77}));
  EXPECT_EQ(Read("s", 0), (Tokens{0, 1, 2, 3, 77}));
  EXPECT_EQ(Read("s", 1), Range(100, 4));
  ASSERT_OK_AND_ASSIGN(info, store_->TruncateSequence(alice_, NameOf("s"), 0));
  EXPECT_EQ(UsedPages(), 0);
}

TEST_F(SequencesTest, TruncatingToWhatIsNotThereIsRefused) {
  BuildWithCache(8);
  Create("s");
  ASSERT_OK(Append("s", 1, Range(0, 3)));
  const absl::Status longer = store_->TruncateSequence(alice_, NameOf("s"), 4).status();
  EXPECT_THAT(longer, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("longest layer has 3 tokens")));
  EXPECT_EQ(base::ErrorField(longer), "length");
  EXPECT_EQ(base::ErrorField(store_->TruncateSequence(alice_, NameOf("s"), -1).status()), "length");
  EXPECT_EQ(Read("s", 1), Range(0, 3));
}

TEST_F(SequencesTest, RelativesNeverSeeEachOthersTokens) {
  BuildWithCache(16);
  Create("a");
  ASSERT_OK(Append("a", 0, Range(0, 6)));
  ASSERT_OK(Append("a", 1, Range(50, 6)));
  Fork("a", "b");
  EXPECT_EQ(UsedPages(), 2);
  EXPECT_EQ(Info("a").shared_pages, 2);
  ASSERT_OK(Append("a", 0, {60, 61}));
  ASSERT_OK(Append("b", 0, {70, 71, 72}));
  EXPECT_EQ(UsedPages(), 4);  // the full page is shared still; each has its own second; b a third
  EXPECT_EQ(Info("b").shared_pages, 1);
  EXPECT_EQ(Read("a", 0), (Tokens{0, 1, 2, 3, 4, 5, 60, 61}));
  EXPECT_EQ(Read("b", 0), (Tokens{0, 1, 2, 3, 4, 5, 70, 71, 72}));
  EXPECT_EQ(Read("b", 1), Range(50, 6));  // copied with the page
  EXPECT_EQ(store_->statistics().copied_pages, 1);
  ASSERT_OK(store_->TruncateSequence(alice_, NameOf("b"), 1));
  ASSERT_OK(Append("b", 0, {80}));
  EXPECT_EQ(Read("a", 0), (Tokens{0, 1, 2, 3, 4, 5, 60, 61}));
  EXPECT_EQ(Read("b", 0), (Tokens{0, 80}));
  ASSERT_OK(store_->DeleteSequence(alice_, NameOf("a")));
  EXPECT_EQ(Read("b", 0), (Tokens{0, 80}));
  EXPECT_EQ(UsedPages(), 1);
}

TEST_F(SequencesTest, AForkThatIsAloneWritesInPlace) {
  BuildWithCache(2);
  Create("a");
  ASSERT_OK(Append("a", 0, Range(0, 2)));
  Fork("a", "b");
  ASSERT_OK(store_->DeleteSequence(alice_, NameOf("a")));
  ASSERT_OK(Append("b", 0, {2}));
  EXPECT_EQ(UsedPages(), 1);
  EXPECT_EQ(store_->statistics().copied_pages, 0);
  EXPECT_EQ(Read("b", 0), Range(0, 3));
}

TEST_F(SequencesTest, ClientsHaveQuotasOfSequencesAndPages) {
  BuildWithCache(16, EvictionPolicy::kNone,
                 {.shared_caches = true, .max_sequences = 3, .max_sequences_per_client = 2, .max_pages_per_client = 3});
  Create("a");
  Create("b");
  const absl::Status own = store_->CreateSequence(alice_, "kvCaches/c", "x").status();
  EXPECT_THAT(own, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the client has 2 sequences")));
  EXPECT_EQ(base::ErrorReason(own), base::kReasonQuotaExceeded);
  EXPECT_EQ(base::ErrorReason(store_->ForkSequence(alice_, NameOf("a"), "x").status()), base::kReasonQuotaExceeded);
  ASSERT_OK(store_->CreateSequence(bob_, "kvCaches/c", "d"));
  EXPECT_THAT(store_->CreateSequence(bob_, "kvCaches/c", "e"),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the server has 3 sequences")));

  ASSERT_OK(Append("a", 0, Range(0, 8)));
  const absl::Status pages = Append("b", 0, Range(0, 5));
  EXPECT_THAT(pages,
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("has 2 pages and would get 2 more; the limit is 3")));
  EXPECT_EQ(base::ErrorReason(pages), base::kReasonQuotaExceeded);
  EXPECT_OK(Append("b", 0, Range(0, 4)));
  EXPECT_OK(Append("d", 0, Range(0, 12))) << "bob's pages are bob's";
  ASSERT_OK(store_->DeleteSequence(alice_, NameOf("a")));
  EXPECT_OK(Append("b", 0, Range(4, 8)));
}

TEST_F(SequencesTest, APageCountsForItsPayerUntilNobodyUsesIt) {
  BuildWithCache(16, EvictionPolicy::kNone, {.shared_caches = true, .max_pages_per_client = 2});
  Create("a");
  ASSERT_OK(Append("a", 0, Range(0, 8)));
  ASSERT_OK(store_->ForkSequence(bob_, NameOf("a"), "b"));
  ASSERT_OK(store_->DeleteSequence(alice_, NameOf("a")));
  Create("c");
  EXPECT_EQ(base::ErrorReason(Append("c", 0, {1})), base::kReasonQuotaExceeded);
  ASSERT_OK(store_->DeleteSequence(bob_, NameOf("b")));
  EXPECT_OK(Append("c", 0, {1}));
}

TEST_F(SequencesTest, AClientIsForgottenWithItsLastPage) {
  BuildWithCache(16, EvictionPolicy::kNone, {.shared_caches = true});
  ASSERT_OK(store_->CreateSequence(bob_, "kvCaches/c", "b"));
  EXPECT_EQ(store_->statistics().clients, 2);
  ASSERT_OK(Append("b", 0, {1}));
  Fork("b", "a");
  ASSERT_OK(store_->DeleteSequence(bob_, NameOf("b")));
  EXPECT_EQ(store_->statistics().clients, 2) << "alice's fork uses a page that counts for bob";
  ASSERT_OK(store_->DeleteSequence(alice_, NameOf("a")));
  EXPECT_EQ(store_->statistics().clients, 1);
}

TEST_F(SequencesTest, ListsAreOfOneCacheInPages) {
  BuildWithCache(8);
  ASSERT_OK(store_->CreateCache(alice_, {.cache_id = "other", .geometry = SmallGeometry(2)}));
  ASSERT_OK(store_->CreateSequence(alice_, "kvCaches/other", "x"));
  for (const char* id : {"b", "c", "a"}) Create(id);
  const auto hidden = store_->BeginImport(alice_, "kvCaches/c", "aa");
  ASSERT_OK_AND_ASSIGN(const auto first, store_->ListSequences(alice_, "kvCaches/c", {.page_size = 2}));
  ASSERT_EQ(first.items.size(), 2u);
  EXPECT_EQ(first.items[0].name, NameOf("a"));
  EXPECT_EQ(first.items[1].name, NameOf("b"));
  ASSERT_OK_AND_ASSIGN(const auto second,
                       store_->ListSequences(alice_, "kvCaches/c", {.page_size = 2, .page_token = first.next_page_token}));
  ASSERT_EQ(second.items.size(), 1u);
  EXPECT_EQ(second.items[0].name, NameOf("c"));
  EXPECT_EQ(second.next_page_token, "");
  EXPECT_EQ(base::ErrorField(store_->ListSequences(alice_, "kvCaches/other", {.page_token = first.next_page_token}).status()),
            "page_token");
  EXPECT_EQ(base::ErrorReason(store_->ListSequences(alice_, "kvCaches/d", {}).status()), base::kReasonKvCacheNotFound);
}

// ---- Transfers --------------------------------------------------------------------------------------------------------------

class TransfersTest : public StoreFixture {
 protected:
  Tokens ReadTransfer(const Transfer& transfer, std::int64_t layer) {
    const auto use = store_->Begin(*store_->SelectTransfer(transfer, layer, 0));
    return use.ok() && *use != nullptr ? ReadTokens(**use, 0) : Tokens{-2};
  }

  std::unique_ptr<SequenceUse> BeginAppend(const Transfer& transfer, std::int64_t layer, const Tokens& tokens) {
    auto use = store_->Begin(*store_->SelectTransfer(transfer, layer, static_cast<std::int64_t>(tokens.size())));
    EXPECT_OK(use);
    if (!use.ok() || *use == nullptr) return nullptr;
    WriteTokens(**use, 0, tokens);
    return *std::move(use);
  }
};

TEST_F(TransfersTest, AnExportIsTheSequenceAsItWas) {
  BuildWithCache(8);
  Create("s");
  ASSERT_OK(Append("s", 0, Range(0, 6)));
  ASSERT_OK_AND_ASSIGN(auto transfer, store_->BeginExport(alice_, NameOf("s")));
  EXPECT_THAT(transfer->info().lengths, ElementsAre(6, 0));
  ASSERT_OK(Append("s", 0, Range(6, 3)));
  ASSERT_OK(store_->TruncateSequence(alice_, NameOf("s"), 2));
  ASSERT_OK(Append("s", 0, {99}));
  EXPECT_EQ(ReadTransfer(*transfer, 0), Range(0, 6));
  EXPECT_THAT(ReadTransfer(*transfer, 1), IsEmpty());
  ASSERT_OK(store_->DeleteSequence(alice_, NameOf("s")));
  EXPECT_EQ(ReadTransfer(*transfer, 0), Range(0, 6));
  transfer = nullptr;
  EXPECT_EQ(UsedPages(), 0);
}

TEST_F(TransfersTest, AnImportAppearsWhenItIsPublished) {
  BuildWithCache(8);
  ASSERT_OK_AND_ASSIGN(auto transfer, store_->BeginImport(alice_, "kvCaches/c", "s"));
  BeginAppend(*transfer, 0, Range(0, 3))->Commit();
  BeginAppend(*transfer, 0, Range(3, 3))->Commit();
  BeginAppend(*transfer, 1, Range(50, 6))->Commit();
  EXPECT_EQ(base::ErrorReason(store_->GetSequence(alice_, NameOf("s")).status()), base::kReasonSequenceNotFound);
  EXPECT_EQ(base::ErrorReason(store_->CreateSequence(alice_, "kvCaches/c", "s").status()), base::kReasonSequenceExists);
  EXPECT_THAT(store_->Publish(*transfer).lengths, ElementsAre(6, 6));
  transfer = nullptr;
  EXPECT_EQ(Read("s", 0), Range(0, 6));
  EXPECT_EQ(Read("s", 1), Range(50, 6));
}

TEST_F(TransfersTest, ADroppedImportLeavesNothing) {
  BuildWithCache(8);
  ASSERT_OK_AND_ASSIGN(auto transfer, store_->BeginImport(alice_, "kvCaches/c", "s"));
  BeginAppend(*transfer, 0, Range(0, 7))->Commit();
  EXPECT_EQ(UsedPages(), 2);
  transfer = nullptr;
  EXPECT_EQ(UsedPages(), 0);
  EXPECT_OK(store_->CreateSequence(alice_, "kvCaches/c", "s"));
}

TEST_F(TransfersTest, PagesOfADroppedImportWaitForTheDevice) {
  BuildWithCache(8);
  ASSERT_OK_AND_ASSIGN(auto transfer, store_->BeginImport(alice_, "kvCaches/c", "s"));
  BeginAppend(*transfer, 0, Range(0, 4))->Commit();
  auto use = BeginAppend(*transfer, 0, Range(4, 4));
  transfer = nullptr;
  EXPECT_EQ(UsedPages(), 2);
  EXPECT_EQ(base::ErrorReason(store_->DeleteCache(alice_, "kvCaches/c")), base::kReasonKvCacheBusy);
  use->Commit();
  EXPECT_EQ(UsedPages(), 0);
  EXPECT_OK(store_->DeleteCache(alice_, "kvCaches/c"));
}

}  // namespace
}  // namespace ridgeline::engine::kv_cache
