// Selections and uses, and KvCacheStore's side of them.

#include "server/engine/kv_cache/sequence_use.h"

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "server/base/check.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/engine/kv_cache/kv_cache.h"
#include "server/engine/kv_cache/kv_cache_store.h"
#include "server/engine/kv_cache/resource_name.h"

namespace ridgeline::engine::kv_cache {
namespace {

std::string FieldOf(const SelectRequest& request, std::size_t row) {
  return absl::StrCat(request.sequences_field, "[", row, "]");
}

// Of one cache, each once; views into the request.
absl::StatusOr<std::vector<SequencePath>> ParseSequences(const SelectRequest& request) {
  if (request.sequences.empty()) return base::InvalidField(request.sequences_field, "is empty; at least one is needed");
  std::vector<SequencePath> paths;
  paths.reserve(request.sequences.size());
  absl::flat_hash_set<std::string_view> ids;
  for (std::size_t row = 0; row < request.sequences.size(); ++row) {
    const std::string& name = request.sequences[row];
    const std::optional<SequencePath> path = SplitSequenceName(name);
    if (!path.has_value()) return NotASequenceName(FieldOf(request, row), name);
    paths.push_back(*path);
    if (path->cache_id != paths.front().cache_id) {
      return base::InvalidField(FieldOf(request, row),
                                absl::StrCat("is ", name, ", and the first is of ", CacheName(paths.front().cache_id),
                                             "; all of one cache are needed"));
    }
    if (request.sequences.size() > 1 && !ids.insert(path->sequence_id).second) {
      return base::InvalidField(FieldOf(request, row),
                                absl::StrCat("names ", name, " once more; each sequence is allowed once"));
    }
  }
  return paths;
}

absl::Status CheckLayer(const SelectRequest& request, std::int64_t num_layers) {
  if (request.layer >= 0 && request.layer < num_layers) return absl::OkStatus();
  return base::InvalidField(request.layer_field,
                            absl::StrCat("is ", request.layer, "; the cache has layers 0 to ", num_layers - 1));
}

}  // namespace

// ---- Selections -------------------------------------------------------------------------------------------------------------

absl::StatusOr<std::shared_ptr<const SequenceSelection>> KvCacheStore::Select(const Caller& caller,
                                                                              const SelectRequest& request) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<SequencePath> paths, ParseSequences(request));
  RIDGELINE_CHECK(request.append_tokens.empty() || request.append_tokens.size() == paths.size());
  const absl::Time now = clock_.Now();
  Garbage garbage;
  base::MutexLock lock(&mutex_);
  RIDGELINE_ASSIGN_OR_RETURN(const auto cache, FindCache(caller, paths.front().cache_id, now, garbage));
  RIDGELINE_RETURN_IF_ERROR(CheckLayer(request, cache->geometry().layers));
  SequenceSelection::Sequences sequences;
  sequences.reserve(paths.size());
  for (const SequencePath& path : paths) {
    RIDGELINE_ASSIGN_OR_RETURN(auto sequence, cache->Find(path.sequence_id));
    sequences.push_back(std::move(sequence));
  }
  return MakeSelection(cache, request.layer, std::move(sequences), request.append_tokens, now);
}

std::shared_ptr<const SequenceSelection> KvCacheStore::SelectTransfer(const Transfer& transfer, std::int64_t layer,
                                                                      std::int64_t append_tokens) {
  RIDGELINE_CHECK(layer >= 0 && layer < transfer.geometry().layers);
  const absl::Time now = clock_.Now();
  base::MutexLock lock(&mutex_);
  return MakeSelection(transfer.cache_, layer, {transfer.sequence_}, absl::MakeConstSpan(&append_tokens, 1), now);
}

std::shared_ptr<const SequenceSelection> KvCacheStore::MakeSelection(const std::shared_ptr<KvCache>& cache, std::int64_t layer,
                                                                     SequenceSelection::Sequences sequences,
                                                                     absl::Span<const std::int64_t> append_tokens,
                                                                     absl::Time now) {
  std::shared_ptr<SequenceSelection> selection(new SequenceSelection(*this, cache, layer));
  selection->append_tokens_.assign(append_tokens.begin(), append_tokens.end());
  selection->expected_tokens_.reserve(sequences.size());
  for (const std::shared_ptr<Sequence>& sequence : sequences) {
    selection->expected_tokens_.push_back(sequence->lengths[layer]);
    cache->Touch(*sequence, now);  // so that others are evicted while it waits
  }
  selection->sequences_ = std::move(sequences);
  cache->BeginWork();
  return selection;
}

SequenceSelection::SequenceSelection(KvCacheStore& store, std::shared_ptr<KvCache> cache, std::int64_t layer)
    : store_(store), cache_(std::move(cache)), layer_(layer) {}

SequenceSelection::~SequenceSelection() { store_.EndWork(*cache_); }

const Geometry& SequenceSelection::geometry() const { return cache_->geometry(); }

std::uint64_t SequenceSelection::cache_uid() const { return cache_->identity().uid; }

void KvCacheStore::EndWork(KvCache& cache) {
  const absl::Time now = clock_.Now();
  base::MutexLock lock(&mutex_);
  cache.EndWork();
  cache.Renew(now);
}

// ---- Uses -------------------------------------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<SequenceUse>> KvCacheStore::Begin(const SequenceSelection& selection) {
  std::unique_ptr<SequenceUse> use(new SequenceUse(*this, selection));
  const absl::Time now = clock_.Now();
  KvCache& cache = *selection.cache_;
  base::MutexLock lock(&mutex_);
  RIDGELINE_ASSIGN_OR_RETURN(const bool begun, cache.Begin(*use, selection.append_tokens_, options_.max_pages_per_client));
  if (!begun) return nullptr;
  for (const SequenceUse::Member& member : use->members_) cache.Touch(*member.sequence, now);
  cache.BeginWork();
  use->cache_ = selection.cache_;
  return use;
}

SequenceUse::SequenceUse(KvCacheStore& store, const SequenceSelection& selection) : store_(store), layer_(selection.layer()) {
  used_.resize(selection.size());
  members_.reserve(selection.size());
  for (const std::shared_ptr<Sequence>& sequence : selection.sequences_) members_.push_back({.sequence = sequence});
}

SequenceUse::~SequenceUse() {
  if (cache_ != nullptr) Abort();
}

const Geometry& SequenceUse::geometry() const { return cache_->geometry(); }

const device::Buffer& SequenceUse::arena() const { return cache_->arena(); }

void SequenceUse::Commit() { store_.EndUse(*this, /*commit=*/true); }

void SequenceUse::Abort() { store_.EndUse(*this, /*commit=*/false); }

void KvCacheStore::EndUse(SequenceUse& use, bool commit) {
  RIDGELINE_CHECK(use.cache_ != nullptr);
  const absl::Time now = clock_.Now();
  base::MutexLock lock(&mutex_);
  use.cache_->End(use, commit);
  use.cache_->EndWork();
  use.cache_->Renew(now);
  use.cache_ = nullptr;
}

}  // namespace ridgeline::engine::kv_cache
