// Caches of a store: names, leases, quotas, memory.

#include <string>
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
using ::testing::StartsWith;

class CachesTest : public StoreFixture {
 protected:
  absl::StatusOr<CacheInfo> CreateCache(const Caller& caller, const std::string& id, std::int64_t pages = 8) {
    return store_->CreateCache(caller, {.cache_id = id, .geometry = SmallGeometry(pages)});
  }

  std::vector<std::string> ListedNames(int page_size = 0) {
    std::vector<std::string> names;
    ListRequest request = {.page_size = page_size};
    do {
      const auto page = store_->ListCaches(alice_, request);
      EXPECT_OK(page);
      for (const CacheInfo& info : page->items) names.push_back(info.name);
      request.page_token = page->next_page_token;
    } while (!request.page_token.empty());
    return names;
  }
};

TEST_F(CachesTest, ANewCacheSaysWhatItIs) {
  Build();
  ASSERT_OK_AND_ASSIGN(const CacheInfo made,
                       store_->CreateCache(alice_, {.cache_id = "c",
                                                    .geometry = SmallGeometry(8),
                                                    .lease_duration = absl::Minutes(3),
                                                    .eviction_policy = EvictionPolicy::kLeastRecentlyUsed}));
  EXPECT_EQ(made.name, "kvCaches/c");
  EXPECT_EQ(made.owner, "alice");
  EXPECT_EQ(made.geometry.capacity_pages, 8);
  EXPECT_EQ(made.used_pages, 0);
  EXPECT_EQ(made.lease_duration, absl::Minutes(3));
  EXPECT_EQ(made.create_time, clock_.Now());
  EXPECT_EQ(made.expire_time, clock_.Now() + absl::Minutes(3));
  EXPECT_EQ(made.eviction_policy, EvictionPolicy::kLeastRecentlyUsed);
  EXPECT_THAT(made.routing_token, StartsWith("instance-1."));
  EXPECT_EQ(made.instance_id, "instance-1");
  ASSERT_OK_AND_ASSIGN(const CacheInfo got, store_->GetCache(alice_, "kvCaches/c"));
  EXPECT_EQ(got.routing_token, made.routing_token);
  EXPECT_EQ(store_->statistics().caches, 1);
  EXPECT_EQ(store_->statistics().free_pages, 8);
  EXPECT_EQ(store_->statistics().arena_bytes, made.geometry.ArenaBytes());
}

TEST_F(CachesTest, TheServerMakesIdsThatDiffer) {
  Build();
  ASSERT_OK_AND_ASSIGN(const CacheInfo first, CreateCache(alice_, ""));
  ASSERT_OK_AND_ASSIGN(const CacheInfo second, CreateCache(alice_, ""));
  EXPECT_NE(first.name, second.name);
  EXPECT_OK(store_->GetCache(alice_, first.name));
}

TEST_F(CachesTest, AnIdIsTakenOnce) {
  Build();
  ASSERT_OK(CreateCache(alice_, "c"));
  const absl::Status status = CreateCache(alice_, "c").status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("kvCaches/c")));
  EXPECT_EQ(base::ErrorReason(status), base::kReasonKvCacheExists);
  EXPECT_EQ(arenas_.num_live(), 1);
}

TEST_F(CachesTest, DeletingGivesTheArenaBack) {
  Build();
  ASSERT_OK(CreateCache(alice_, "c"));
  Create("s");
  ASSERT_OK(Append("s", 0, Range(0, 9)));
  ASSERT_OK(store_->DeleteCache(alice_, "kvCaches/c"));
  EXPECT_EQ(arenas_.num_live(), 0);
  EXPECT_EQ(base::ErrorReason(store_->DeleteCache(alice_, "kvCaches/c")), base::kReasonKvCacheNotFound);
  EXPECT_EQ(store_->statistics().used_pages, 0);
  EXPECT_EQ(store_->statistics().clients, 0);
  EXPECT_OK(CreateCache(alice_, "c"));
}

TEST_F(CachesTest, BadArgumentsTakeNothing) {
  Build();
  EXPECT_EQ(base::ErrorField(CreateCache(alice_, "NO-ID").status()), "kv_cache_id");
  EXPECT_EQ(base::ErrorField(CreateCache(alice_, "c", -1).status()), "kv_cache.capacity_pages");
  for (const absl::Duration lease : {absl::ZeroDuration(), absl::Milliseconds(999), -absl::InfiniteDuration(),
                                     absl::InfiniteDuration(), absl::Hours(24 * 7) + absl::Nanoseconds(1)}) {
    const absl::Status status =
        store_->CreateCache(alice_, {.cache_id = "c", .geometry = SmallGeometry(8), .lease_duration = lease}).status();
    EXPECT_EQ(base::ErrorField(status), "kv_cache.lease_duration") << status;
  }
  EXPECT_EQ(base::ErrorField(store_->GetCache(alice_, "c").status()), "name");
  EXPECT_EQ(base::ErrorField(store_->DeleteCache(alice_, "kvCaches/c/sequences/s")), "name");
  EXPECT_EQ(store_->statistics().caches, 0);
  EXPECT_EQ(arenas_.num_live(), 0);
}

TEST_F(CachesTest, AnArenaThatTheDeviceLacksLeavesNothing) {
  Build();
  arenas_.set_fails(true);
  EXPECT_EQ(base::ErrorReason(CreateCache(alice_, "c").status()), base::kReasonOutOfMemory);
  EXPECT_EQ(base::ErrorReason(store_->GetCache(alice_, "kvCaches/c").status()), base::kReasonKvCacheNotFound);
  arenas_.set_fails(false);
  EXPECT_OK(CreateCache(alice_, "c"));
}

TEST_F(CachesTest, AnArenaLargerThanTheDeviceIsRefusedWithItsBytes) {
  Build({.max_arena_bytes = 1000});
  EXPECT_THAT(CreateCache(alice_, "c"), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1000 bytes")));
}

TEST_F(CachesTest, ClientsHaveQuotasOfCaches) {
  Build({.max_caches = 3, .max_caches_per_client = 2});
  ASSERT_OK(CreateCache(alice_, "a"));
  ASSERT_OK(CreateCache(alice_, "b"));
  const absl::Status own = CreateCache(alice_, "c").status();
  EXPECT_THAT(own, StatusIs(absl::StatusCode::kResourceExhausted, AllOf(HasSubstr("2 caches"), HasSubstr("limit is 2"))));
  EXPECT_EQ(base::ErrorReason(own), base::kReasonQuotaExceeded);
  ASSERT_OK(CreateCache(bob_, "d"));
  EXPECT_THAT(CreateCache(bob_, "e"), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the server has 3 caches")));
  ASSERT_OK(store_->DeleteCache(alice_, "kvCaches/a"));
  EXPECT_OK(CreateCache(alice_, "c"));
}

TEST_F(CachesTest, ACacheOfAnotherInstanceIsLost) {
  Build();
  ASSERT_OK_AND_ASSIGN(const CacheInfo made, CreateCache(alice_, "c"));
  const auto reason_for = [&](const std::string& token, const char* name) {
    return base::ErrorReason(store_->GetCache({.client = "alice", .session_token = token}, name).status());
  };
  EXPECT_EQ(reason_for("", "kvCaches/gone"), base::kReasonKvCacheNotFound);
  EXPECT_EQ(reason_for(made.routing_token, "kvCaches/gone"), base::kReasonKvCacheNotFound);
  EXPECT_EQ(reason_for("garbage", "kvCaches/gone"), base::kReasonKvCacheNotFound);
  EXPECT_EQ(reason_for("instance-0.xabc", "kvCaches/gone"), base::kReasonKvCacheLost);
  // A cache that has the same name here is another one.
  EXPECT_EQ(reason_for("instance-0.xabc", "kvCaches/c"), base::kReasonKvCacheLost);
  EXPECT_EQ(reason_for(made.routing_token, "kvCaches/c"), "");
}

TEST_F(CachesTest, ToOthersACacheIsNotThere) {
  Build();
  ASSERT_OK(CreateCache(alice_, "c"));
  Create("s");
  // For each method: of a cache of alice's, and of one that nobody has.
  for (const char* const there : {"kvCaches/c", "kvCaches/d"}) {
    const std::string name = absl::StrCat(there, "/sequences/s");
    for (const absl::Status& status :
         {store_->GetCache(bob_, there).status(), store_->RenewLease(bob_, there, {}).status(),
          store_->DeleteCache(bob_, there), store_->CreateSequence(bob_, there, "t").status(),
          store_->GetSequence(bob_, name).status(), store_->ListSequences(bob_, there, {}).status(),
          store_->DeleteSequence(bob_, name), store_->ForkSequence(bob_, name, "t").status(),
          store_->TruncateSequence(bob_, name, 0).status(), store_->Select(bob_, {.sequences = {name}}).status(),
          store_->BeginExport(bob_, name).status(), store_->BeginImport(bob_, there, "t").status()}) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound,
                                   absl::StrCat("there is no ", there, ": never made, deleted, or its lease ran out")));
      EXPECT_EQ(base::ErrorReason(status), base::kReasonKvCacheNotFound);
    }
  }
  EXPECT_TRUE(store_->ListCaches(bob_, {})->items.empty());
  EXPECT_EQ(store_->ListCaches(alice_, {})->items.size(), 1u);
  EXPECT_OK(store_->GetSequence(alice_, NameOf("s")));
}

TEST_F(CachesTest, EachClientHasNamesOfItsOwn) {
  Build();
  ASSERT_OK(CreateCache(alice_, "c", 8));
  ASSERT_OK(CreateCache(bob_, "c", 5)) << "or bob would learn what alice has";
  ASSERT_OK(CreateCache({}, "c", 3)) << "who gives no name is a client too";
  EXPECT_EQ(store_->GetCache(alice_, "kvCaches/c")->geometry.capacity_pages, 8);
  EXPECT_EQ(store_->GetCache(bob_, "kvCaches/c")->geometry.capacity_pages, 5);
  EXPECT_EQ(store_->GetCache({}, "kvCaches/c")->geometry.capacity_pages, 3);
  EXPECT_EQ(store_->statistics().caches, 3);
  ASSERT_OK(store_->DeleteCache(bob_, "kvCaches/c"));
  EXPECT_OK(store_->GetCache(alice_, "kvCaches/c"));
  clock_.Advance(kDefaultLease);
  EXPECT_EQ(store_->SweepExpired(), 2);
  EXPECT_EQ(arenas_.num_live(), 0);
}

TEST_F(CachesTest, UsingOnesOwnDoesNotRenewWhatOthersCallTheSame) {
  Build();
  ASSERT_OK(CreateCache(alice_, "c"));
  ASSERT_OK(CreateCache(bob_, "c"));
  clock_.Advance(kDefaultLease / 2);
  ASSERT_OK(store_->GetCache(bob_, "kvCaches/c"));
  clock_.Advance(kDefaultLease / 2);
  EXPECT_EQ(base::ErrorReason(store_->GetCache(alice_, "kvCaches/c").status()), base::kReasonKvCacheNotFound);
  EXPECT_OK(store_->GetCache(bob_, "kvCaches/c"));
}

TEST_F(CachesTest, ClientsMayShareTheirCaches) {
  Build({.shared_caches = true});
  ASSERT_OK(CreateCache(alice_, "c"));
  EXPECT_EQ(store_->GetCache(bob_, "kvCaches/c")->owner, "alice");
  EXPECT_EQ(base::ErrorReason(CreateCache(bob_, "c").status()), base::kReasonKvCacheExists);
  EXPECT_EQ(store_->ListCaches(bob_, {})->items.size(), 1u);
  ASSERT_OK(store_->DeleteCache(bob_, "kvCaches/c"));
  EXPECT_EQ(store_->statistics().clients, 0);
}

TEST_F(CachesTest, ListsAreInTheOrderOfNamesInPages) {
  Build();
  for (const char* id : {"b", "d", "a", "c"}) ASSERT_OK(CreateCache(alice_, id));
  EXPECT_THAT(ListedNames(), ElementsAre("kvCaches/a", "kvCaches/b", "kvCaches/c", "kvCaches/d"));
  EXPECT_THAT(ListedNames(3), ElementsAre("kvCaches/a", "kvCaches/b", "kvCaches/c", "kvCaches/d"));
}

// ---- Leases -----------------------------------------------------------------------------------------------------------------

TEST_F(CachesTest, ALeaseRunsOutAfterTheLastUse) {
  BuildWithCache(8);
  clock_.Advance(absl::Minutes(9));
  ASSERT_OK(store_->CreateSequence(alice_, "kvCaches/c", "s"));  // a use
  clock_.Advance(absl::Minutes(10) - absl::Nanoseconds(1));
  EXPECT_OK(store_->GetCache(alice_, "kvCaches/c"));  // another
  clock_.Advance(absl::Minutes(10));
  EXPECT_EQ(base::ErrorReason(store_->GetCache(alice_, "kvCaches/c").status()), base::kReasonKvCacheNotFound);
  EXPECT_EQ(arenas_.num_live(), 0);
  EXPECT_EQ(store_->statistics().expired_caches, 1);
}

TEST_F(CachesTest, EveryKindOfUseRenews) {
  BuildWithCache(8);
  Create("s");
  const auto still_there = [&] {
    clock_.Advance(absl::Minutes(6));
    const auto page = store_->ListCaches(alice_, {});
    return page.ok() && page->items.size() == 1;
  };
  EXPECT_TRUE(still_there());
  ASSERT_OK(store_->GetSequence(alice_, NameOf("s")));
  EXPECT_TRUE(still_there());
  ASSERT_OK(Append("s", 0, {1, 2, 3}));
  EXPECT_TRUE(still_there());
  ASSERT_OK(store_->TruncateSequence(alice_, NameOf("s"), 1));
  EXPECT_TRUE(still_there());
  Fork("s", "t");
  EXPECT_TRUE(still_there());
  ASSERT_OK(store_->ListSequences(alice_, "kvCaches/c", {}));
  EXPECT_TRUE(still_there());
  ASSERT_OK(store_->DeleteSequence(alice_, NameOf("t")));
  EXPECT_TRUE(still_there());
  ASSERT_OK(store_->RenewLease(alice_, "kvCaches/c", std::nullopt));
  EXPECT_TRUE(still_there());
  EXPECT_FALSE(still_there()) << "listing caches must not renew";
}

TEST_F(CachesTest, RenewingMayChangeTheDuration) {
  BuildWithCache(8);
  ASSERT_OK_AND_ASSIGN(const CacheInfo renewed, store_->RenewLease(alice_, "kvCaches/c", absl::Hours(2)));
  EXPECT_EQ(renewed.expire_time, clock_.Now() + absl::Hours(2));
  clock_.Advance(absl::Minutes(119));
  ASSERT_OK_AND_ASSIGN(const CacheInfo kept, store_->RenewLease(alice_, "kvCaches/c", std::nullopt));
  EXPECT_EQ(kept.lease_duration, absl::Hours(2));
  const absl::Status status = store_->RenewLease(alice_, "kvCaches/c", absl::Hours(24 * 8)).status();
  EXPECT_EQ(base::ErrorField(status), "lease_duration");
}

TEST_F(CachesTest, TheSweepFreesWhatNobodyAsksFor) {
  Build();
  ASSERT_OK(CreateCache(alice_, "a"));
  clock_.Advance(absl::Minutes(5));
  ASSERT_OK(CreateCache(alice_, "b"));
  EXPECT_EQ(store_->SweepExpired(), 0);
  clock_.Advance(absl::Minutes(5));
  EXPECT_EQ(store_->SweepExpired(), 1);
  EXPECT_EQ(arenas_.num_live(), 1);
  EXPECT_THAT(ListedNames(), ElementsAre("kvCaches/b"));
}

TEST_F(CachesTest, AnExpiredCacheMakesRoomForANewOne) {
  Build({.max_caches = 1});
  ASSERT_OK(CreateCache(alice_, "a"));
  clock_.Advance(absl::Minutes(10));
  EXPECT_OK(CreateCache(alice_, "a"));
  EXPECT_EQ(arenas_.num_live(), 1);
}

TEST_F(CachesTest, WaitingAndRunningWorkKeepsItsCache) {
  BuildWithCache(8);
  Create("s");
  const auto is_kept = [&] {
    const std::string reason = base::ErrorReason(store_->DeleteCache(alice_, "kvCaches/c"));
    clock_.Advance(absl::Hours(1));
    return reason == base::kReasonKvCacheBusy && store_->SweepExpired() == 0;
  };
  // A lease begins with the end of the work.
  const auto has_new_lease = [&] {
    clock_.Advance(absl::Minutes(9));
    return store_->SweepExpired() == 0;
  };
  ASSERT_OK_AND_ASSIGN(auto selection, Select({"s"}, 0, {1}));
  EXPECT_TRUE(is_kept());
  ASSERT_OK_AND_ASSIGN(auto use, store_->Begin(*selection));
  selection = nullptr;
  EXPECT_TRUE(is_kept());
  use->Commit();
  EXPECT_TRUE(has_new_lease());
  ASSERT_OK_AND_ASSIGN(auto transfer, store_->BeginExport(alice_, NameOf("s")));
  EXPECT_TRUE(is_kept());
  transfer = nullptr;
  EXPECT_TRUE(has_new_lease());
  ASSERT_OK_AND_ASSIGN(selection, Select({"s"}, 0));
  EXPECT_TRUE(is_kept());
  selection = nullptr;
  EXPECT_TRUE(has_new_lease());
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(store_->SweepExpired(), 1);
  EXPECT_EQ(arenas_.num_live(), 0);
}

}  // namespace
}  // namespace ridgeline::engine::kv_cache
