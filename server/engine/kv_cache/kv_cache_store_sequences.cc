// KvCacheStore: sequences, and transfers of them.

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/engine/kv_cache/errors.h"
#include "server/engine/kv_cache/kv_cache.h"
#include "server/engine/kv_cache/kv_cache_store.h"
#include "server/engine/kv_cache/listing.h"
#include "server/engine/kv_cache/resource_name.h"

namespace ridgeline::engine::kv_cache {

absl::StatusOr<SequenceInfo> KvCacheStore::CreateSequence(const Caller& caller, std::string_view parent,
                                                          std::string_view sequence_id) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::string_view cache_id, ParseCacheName("parent", parent));
  RIDGELINE_ASSIGN_OR_RETURN(const std::string id, CheckOrMakeId("sequence_id", sequence_id));
  const absl::Time now = clock_.Now();
  Garbage garbage;
  base::MutexLock lock(&mutex_);
  RIDGELINE_ASSIGN_OR_RETURN(const auto cache, FindCache(caller, cache_id, now, garbage));
  RIDGELINE_ASSIGN_OR_RETURN(const auto sequence, AddSequence(caller, *cache, id, /*hidden=*/false, nullptr, now));
  return cache->Info(*sequence);
}

absl::StatusOr<SequenceInfo> KvCacheStore::GetSequence(const Caller& caller, std::string_view name) {
  const absl::Time now = clock_.Now();
  Garbage garbage;
  base::MutexLock lock(&mutex_);
  RIDGELINE_ASSIGN_OR_RETURN(const FoundSequence found, FindSequence(caller, name, now, garbage));
  return found.cache->Info(*found.sequence);
}

absl::StatusOr<ListPage<SequenceInfo>> KvCacheStore::ListSequences(const Caller& caller, std::string_view parent,
                                                                   const ListRequest& request) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::string_view cache_id, ParseCacheName("parent", parent));
  RIDGELINE_ASSIGN_OR_RETURN(const ListPlace place, ParseListRequest(SequenceName(cache_id, ""), request));
  const absl::Time now = clock_.Now();
  ListPage<SequenceInfo> page;
  std::shared_ptr<KvCache> cache;
  std::vector<std::shared_ptr<Sequence>> sequences;
  {
    Garbage garbage;
    base::MutexLock lock(&mutex_);
    RIDGELINE_ASSIGN_OR_RETURN(cache, FindCache(caller, cache_id, now, garbage));
    const auto is_listed = [](const auto& sequence) { return sequence->state == Sequence::State::kListed; };
    sequences = TakePage(cache->sequences(), place, is_listed, page.next_page_token);
  }
  // One by one: each takes time in proportion to its pages, which others shall not wait for together.
  for (const std::shared_ptr<Sequence>& sequence : sequences) {
    base::MutexLock lock(&mutex_);
    if (!sequence->IsGone()) page.items.push_back(cache->Info(*sequence));
  }
  return page;
}

absl::Status KvCacheStore::DeleteSequence(const Caller& caller, std::string_view name) {
  const absl::Time now = clock_.Now();
  Garbage garbage;
  base::MutexLock lock(&mutex_);
  RIDGELINE_ASSIGN_OR_RETURN(const FoundSequence found, FindIdleSequence(caller, name, now, garbage));
  found.cache->Delete(*found.sequence);
  return absl::OkStatus();
}

absl::StatusOr<SequenceInfo> KvCacheStore::ForkSequence(const Caller& caller, std::string_view name,
                                                        std::string_view sequence_id) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::string id, CheckOrMakeId("sequence_id", sequence_id));
  const absl::Time now = clock_.Now();
  Garbage garbage;
  base::MutexLock lock(&mutex_);
  RIDGELINE_ASSIGN_OR_RETURN(const FoundSequence found, FindSequence(caller, name, now, garbage));
  RIDGELINE_ASSIGN_OR_RETURN(const auto fork,
                             AddSequence(caller, *found.cache, id, /*hidden=*/false, found.sequence.get(), now));
  return found.cache->Info(*fork);
}

absl::StatusOr<SequenceInfo> KvCacheStore::TruncateSequence(const Caller& caller, std::string_view name, std::int64_t length) {
  if (length < 0) return base::InvalidField("length", absl::StrCat("is ", length, "; at least 0 is needed"));
  const absl::Time now = clock_.Now();
  Garbage garbage;
  base::MutexLock lock(&mutex_);
  RIDGELINE_ASSIGN_OR_RETURN(const FoundSequence found, FindIdleSequence(caller, name, now, garbage));
  if (const std::int64_t tokens = found.sequence->tokens(); length > tokens) {
    return base::InvalidField("length", absl::StrCat("is ", length, "; the longest layer has ", tokens, " tokens"));
  }
  found.cache->Truncate(*found.sequence, length);
  found.cache->Touch(*found.sequence, now);
  return found.cache->Info(*found.sequence);
}

absl::StatusOr<KvCacheStore::FoundSequence> KvCacheStore::FindSequence(const Caller& caller, std::string_view name,
                                                                       absl::Time now, Garbage& garbage) {
  RIDGELINE_ASSIGN_OR_RETURN(const SequencePath path, ParseSequenceName("name", name));
  FoundSequence found;
  RIDGELINE_ASSIGN_OR_RETURN(found.cache, FindCache(caller, path.cache_id, now, garbage));
  RIDGELINE_ASSIGN_OR_RETURN(found.sequence, found.cache->Find(path.sequence_id));
  return found;
}

absl::StatusOr<KvCacheStore::FoundSequence> KvCacheStore::FindIdleSequence(const Caller& caller, std::string_view name,
                                                                           absl::Time now, Garbage& garbage) {
  RIDGELINE_ASSIGN_OR_RETURN(FoundSequence found, FindSequence(caller, name, now, garbage));
  if (found.sequence->IsBusy()) return SequenceBusy(found.cache->identity().id, found.sequence->id);
  return found;
}

absl::StatusOr<std::shared_ptr<Sequence>> KvCacheStore::AddSequence(const Caller& caller, KvCache& cache,
                                                                    const std::string& sequence_id, bool hidden,
                                                                    const Sequence* origin, absl::Time now) {
  if (cache.HasId(sequence_id)) return SequenceExists(cache.identity().id, sequence_id);
  if (ledger_.num_sequences() >= options_.max_sequences) {
    return QuotaExceeded("the server", "sequences", ledger_.num_sequences(), 1, options_.max_sequences);
  }
  const std::int64_t held = ledger_.Balance(caller.client).sequences;
  if (held >= options_.max_sequences_per_client) {
    return QuotaExceeded("the client", "sequences", held, 1, options_.max_sequences_per_client);
  }
  return cache.Add(sequence_id, caller.client, hidden ? Sequence::State::kHidden : Sequence::State::kListed, origin, now);
}

// ---- Transfers --------------------------------------------------------------------------------------------------------------

absl::StatusOr<std::shared_ptr<const Transfer>> KvCacheStore::BeginExport(const Caller& caller, std::string_view name) {
  const std::string id = MakeId();
  const absl::Time now = clock_.Now();
  Garbage garbage;
  base::MutexLock lock(&mutex_);
  RIDGELINE_ASSIGN_OR_RETURN(const FoundSequence found, FindSequence(caller, name, now, garbage));
  RIDGELINE_ASSIGN_OR_RETURN(const auto snapshot,
                             AddSequence(caller, *found.cache, id, /*hidden=*/true, found.sequence.get(), now));
  found.cache->BeginWork();
  return std::shared_ptr<const Transfer>(new Transfer(*this, found.cache, snapshot, found.cache->Info(*snapshot)));
}

absl::StatusOr<std::shared_ptr<const Transfer>> KvCacheStore::BeginImport(const Caller& caller, std::string_view parent,
                                                                          std::string_view sequence_id) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::string_view cache_id, ParseCacheName("parent", parent));
  RIDGELINE_ASSIGN_OR_RETURN(const std::string id, CheckOrMakeId("sequence_id", sequence_id));
  const absl::Time now = clock_.Now();
  Garbage garbage;
  base::MutexLock lock(&mutex_);
  RIDGELINE_ASSIGN_OR_RETURN(const auto cache, FindCache(caller, cache_id, now, garbage));
  RIDGELINE_ASSIGN_OR_RETURN(const auto sequence, AddSequence(caller, *cache, id, /*hidden=*/true, nullptr, now));
  cache->BeginWork();
  return std::shared_ptr<const Transfer>(new Transfer(*this, cache, sequence, cache->Info(*sequence)));
}

SequenceInfo KvCacheStore::Publish(const Transfer& import) {
  base::MutexLock lock(&mutex_);
  import.cache_->Publish(*import.sequence_);
  return import.cache_->Info(*import.sequence_);
}

Transfer::Transfer(KvCacheStore& store, std::shared_ptr<KvCache> cache, std::shared_ptr<Sequence> sequence, SequenceInfo info)
    : store_(store), cache_(std::move(cache)), sequence_(std::move(sequence)), info_(std::move(info)) {}

Transfer::~Transfer() { store_.EndTransfer(*this); }

void KvCacheStore::EndTransfer(const Transfer& transfer) {
  const absl::Time now = clock_.Now();
  base::MutexLock lock(&mutex_);
  if (transfer.sequence_->state == Sequence::State::kHidden) transfer.cache_->Delete(*transfer.sequence_);
  transfer.cache_->EndWork();
  transfer.cache_->Renew(now);
}

const Geometry& Transfer::geometry() const { return cache_->geometry(); }

}  // namespace ridgeline::engine::kv_cache
