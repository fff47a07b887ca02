#include "server/engine/kv_cache/kv_cache_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/check.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/engine/kv_cache/errors.h"
#include "server/engine/kv_cache/kv_cache.h"
#include "server/engine/kv_cache/listing.h"
#include "server/engine/kv_cache/resource_name.h"

// Garbage is declared before the lock, here and below: it goes after the mutex has been let go.

namespace ridgeline::engine::kv_cache {
namespace {

absl::StatusOr<absl::Duration> CheckLease(const char* field, absl::Duration lease) {
  if (lease >= kShortestLease && lease <= kLongestLease) return lease;
  return base::InvalidField(field, absl::StrCat("is ", absl::FormatDuration(lease), "; ", absl::FormatDuration(kShortestLease),
                                                " to ", absl::FormatDuration(kLongestLease), " is allowed"));
}

}  // namespace

KvCacheStore::KvCacheStore(KvCacheOptions options, AllocateArena allocate_arena, const base::Clock& clock)
    : options_(std::move(options)), allocate_arena_(std::move(allocate_arena)), clock_(clock), names_(options_.shared_caches) {}

KvCacheStore::~KvCacheStore() {
  base::MutexLock lock(&mutex_);
  for (const auto& cache : names_.MadeCaches()) RIDGELINE_CHECK(!cache->HasWork());
}

// ---- Caches -----------------------------------------------------------------------------------------------------------------

absl::StatusOr<CacheInfo> KvCacheStore::CreateCache(const Caller& caller, const CreateCacheRequest& request) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::string id, CheckOrMakeId("kv_cache_id", request.cache_id));
  RIDGELINE_ASSIGN_OR_RETURN(const Geometry geometry, CheckGeometry(request.geometry, options_.max_arena_bytes));
  RIDGELINE_ASSIGN_OR_RETURN(const absl::Duration lease,
                             CheckLease("kv_cache.lease_duration", request.lease_duration.value_or(kDefaultLease)));
  CacheIdentity identity;
  identity.id = id;
  identity.eviction_policy = request.eviction_policy;
  identity.routing_token = MakeRoutingToken(options_.instance_id);
  identity.instance_id = options_.instance_id;
  {
    const absl::Time now = clock_.Now();
    Garbage garbage;
    base::MutexLock lock(&mutex_);
    RemoveExpired(now, garbage);
    RIDGELINE_ASSIGN_OR_RETURN(identity.owner, Reserve(caller, id));
    identity.uid = next_uid_++;
  }
  absl::StatusOr<device::Buffer> arena = allocate_arena_(geometry.ArenaBytes());
  if (!arena.ok()) {
    base::MutexLock lock(&mutex_);
    names_.Remove(caller.client, id);
    ledger_.RemoveCache(identity.owner);
    return arena.status();
  }
  identity.create_time = clock_.Now();
  PagePool pool(geometry.capacity_pages);
  base::MutexLock lock(&mutex_);
  const auto cache =
      std::make_shared<KvCache>(std::move(identity), geometry, *std::move(arena), std::move(pool), lease, ledger_);
  names_.Put(caller.client, id, cache);
  return cache->Info();
}

absl::StatusOr<ClientAccount*> KvCacheStore::Reserve(const Caller& caller, const std::string& cache_id) {
  if (names_.Of(caller.client).contains(cache_id)) return CacheExists(cache_id);
  if (ledger_.num_caches() >= options_.max_caches) {
    return QuotaExceeded("the server", "caches", ledger_.num_caches(), 1, options_.max_caches);
  }
  const std::int64_t held = ledger_.Balance(caller.client).caches;
  if (held >= options_.max_caches_per_client) {
    return QuotaExceeded("the client", "caches", held, 1, options_.max_caches_per_client);
  }
  names_.Put(caller.client, cache_id, nullptr);
  return ledger_.AddCache(caller.client);
}

absl::StatusOr<CacheInfo> KvCacheStore::GetCache(const Caller& caller, std::string_view name) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::string_view id, ParseCacheName("name", name));
  const absl::Time now = clock_.Now();
  Garbage garbage;
  base::MutexLock lock(&mutex_);
  RIDGELINE_ASSIGN_OR_RETURN(const auto cache, FindCache(caller, id, now, garbage));
  return cache->Info();
}

absl::StatusOr<ListPage<CacheInfo>> KvCacheStore::ListCaches(const Caller& caller, const ListRequest& request) {
  RIDGELINE_ASSIGN_OR_RETURN(const ListPlace place, ParseListRequest(CacheName(""), request));
  const absl::Time now = clock_.Now();
  ListPage<CacheInfo> page;
  Garbage garbage;
  base::MutexLock lock(&mutex_);
  RemoveExpired(now, garbage);
  const auto is_made = [](const std::shared_ptr<KvCache>& cache) { return cache != nullptr; };
  for (const auto& cache : TakePage(names_.Of(caller.client), place, is_made, page.next_page_token)) {
    page.items.push_back(cache->Info());
  }
  return page;
}

absl::Status KvCacheStore::DeleteCache(const Caller& caller, std::string_view name) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::string_view id, ParseCacheName("name", name));
  const absl::Time now = clock_.Now();
  Garbage garbage;
  base::MutexLock lock(&mutex_);
  RIDGELINE_ASSIGN_OR_RETURN(auto cache, FindCache(caller, id, now, garbage));
  if (cache->HasWork()) return CacheBusy(id);
  RemoveCache(std::move(cache), garbage);
  return absl::OkStatus();
}

absl::StatusOr<CacheInfo> KvCacheStore::RenewLease(const Caller& caller, std::string_view name,
                                                   std::optional<absl::Duration> duration) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::string_view id, ParseCacheName("name", name));
  if (duration.has_value()) RIDGELINE_RETURN_IF_ERROR(CheckLease("lease_duration", *duration).status());
  const absl::Time now = clock_.Now();
  Garbage garbage;
  base::MutexLock lock(&mutex_);
  RIDGELINE_ASSIGN_OR_RETURN(const auto cache, FindCache(caller, id, now, garbage));
  if (duration.has_value()) cache->SetLease(*duration);
  cache->Renew(now);
  return cache->Info();
}

absl::StatusOr<std::shared_ptr<KvCache>> KvCacheStore::FindCache(const Caller& caller, std::string_view cache_id,
                                                                 absl::Time now, Garbage& garbage) {
  // A session that comes from a node that has gone does not mean the cache of that name here.
  const std::string_view instance = InstanceOfToken(caller.session_token);
  if (!instance.empty() && instance != options_.instance_id) return CacheLost(cache_id);
  const CacheNames::Caches& caches = names_.Of(caller.client);
  const auto found = caches.find(cache_id);
  if (found == caches.end() || found->second == nullptr) return CacheNotFound(cache_id);
  std::shared_ptr<KvCache> cache = found->second;
  if (cache->IsExpired(now)) {
    RemoveCache(std::move(cache), garbage);
    ++gone_.expired_caches;
    return CacheNotFound(cache_id);
  }
  cache->Renew(now);
  return cache;
}

void KvCacheStore::RemoveCache(std::shared_ptr<KvCache> cache, Garbage& garbage) {
  const CacheIdentity& identity = cache->identity();
  names_.Remove(identity.owner->client, identity.id);
  cache->DeleteAll();
  ledger_.RemoveCache(identity.owner);
  gone_.evicted_sequences += cache->num_evicted();
  gone_.copied_pages += cache->num_copied();
  garbage.push_back(std::move(cache));
}

std::int64_t KvCacheStore::RemoveExpired(absl::Time now, Garbage& garbage) {
  std::int64_t num_removed = 0;
  for (std::shared_ptr<KvCache>& cache : names_.MadeCaches()) {
    if (!cache->IsExpired(now)) continue;
    RemoveCache(std::move(cache), garbage);
    ++num_removed;
  }
  gone_.expired_caches += num_removed;
  return num_removed;
}

std::int64_t KvCacheStore::SweepExpired() {
  const absl::Time now = clock_.Now();
  Garbage garbage;
  base::MutexLock lock(&mutex_);
  return RemoveExpired(now, garbage);
}

KvCacheStatistics KvCacheStore::statistics() const {
  base::MutexLock lock(&mutex_);
  KvCacheStatistics sum = gone_;
  sum.clients = ledger_.num_clients();
  for (const auto& cache : names_.MadeCaches()) {
    ++sum.caches;
    sum.sequences += cache->num_listed();
    sum.used_pages += cache->pool().num_used();
    sum.free_pages += cache->pool().num_free();
    sum.arena_bytes += cache->geometry().ArenaBytes();
    sum.evicted_sequences += cache->num_evicted();
    sum.copied_pages += cache->num_copied();
  }
  return sum;
}

}  // namespace ridgeline::engine::kv_cache
