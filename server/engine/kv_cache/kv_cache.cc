#include "server/engine/kv_cache/kv_cache.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "server/base/check.h"
#include "server/engine/kv_cache/errors.h"
#include "server/engine/kv_cache/resource_name.h"

namespace ridgeline::engine::kv_cache {
namespace {

// Evicted ids that a cache remembers, to say so at their next use.
constexpr std::size_t kRememberedEvictions = 4096;

}  // namespace

KvCache::KvCache(CacheIdentity identity, const Geometry& geometry, device::Buffer arena, PagePool pool, absl::Duration lease,
                 ClientLedger& ledger)
    : identity_(std::move(identity)),
      geometry_(geometry),
      arena_(std::move(arena)),
      ledger_(ledger),
      lease_(lease),
      expire_time_(identity_.create_time + lease),
      pool_(std::move(pool)),
      evicted_(kRememberedEvictions) {}

absl::StatusOr<std::shared_ptr<Sequence>> KvCache::Find(std::string_view sequence_id) const {
  const auto found = sequences_.find(sequence_id);
  if (found != sequences_.end() && found->second->state == Sequence::State::kListed) return found->second;
  if (evicted_.Contains(sequence_id)) return SequenceEvicted(identity_.id, sequence_id);
  return SequenceNotFound(identity_.id, sequence_id);
}

std::shared_ptr<Sequence> KvCache::Add(std::string sequence_id, std::string_view client, Sequence::State state,
                                       const Sequence* origin, absl::Time now) {
  auto sequence = std::make_shared<Sequence>();
  sequence->id = std::move(sequence_id);
  sequence->owner = ledger_.AddSequence(client);
  sequence->state = state;
  sequence->create_time = now;
  sequence->use_time = now;
  if (origin == nullptr) {
    sequence->lengths.assign(geometry_.layers, 0);
  } else {
    sequence->table = origin->table;
    sequence->lengths = origin->lengths;
    for (const std::int32_t page : sequence->table) pool_.Share(page);
  }
  if (state == Sequence::State::kHidden) {
    ++num_hidden_;
  } else {
    evicted_.Remove(sequence->id);
  }
  sequence->place_by_use = by_use_.insert(by_use_.end(), sequence.get());
  sequences_[sequence->id] = sequence;
  return sequence;
}

void KvCache::Remove(Sequence& sequence, Sequence::State state) {
  RIDGELINE_CHECK(!sequence.IsGone());
  if (sequence.state == Sequence::State::kHidden) --num_hidden_;
  sequence.state = state;
  ledger_.RemoveSequence(std::exchange(sequence.owner, nullptr));
  by_use_.erase(sequence.place_by_use);
  if (!sequence.IsBusy()) ReleaseTable(sequence);
  if (state == Sequence::State::kEvicted) {
    evicted_.Add(sequence.id);
    ++num_evicted_;
  }
  sequences_.erase(sequences_.find(sequence.id));  // last: it may own the sequence
}

void KvCache::DeleteAll() {
  while (!by_use_.empty()) Delete(*by_use_.back());
}

void KvCache::Publish(Sequence& sequence) {
  RIDGELINE_CHECK(sequence.state == Sequence::State::kHidden && !sequence.IsBusy());
  sequence.state = Sequence::State::kListed;
  --num_hidden_;
  evicted_.Remove(sequence.id);
}

void KvCache::Truncate(Sequence& sequence, std::int64_t length) {
  RIDGELINE_CHECK(!sequence.IsBusy());
  for (std::int64_t& tokens : sequence.lengths) tokens = std::min(tokens, length);
  const auto kept = static_cast<std::size_t>(geometry_.PagesFor(sequence.tokens()));
  while (sequence.table.size() > kept) {
    ReleasePage(sequence.table.back());
    sequence.table.pop_back();
  }
}

void KvCache::Touch(Sequence& sequence, absl::Time now) {
  sequence.use_time = now;
  by_use_.splice(by_use_.end(), by_use_, sequence.place_by_use);
}

void KvCache::ReleasePage(std::int32_t page) {
  ClientAccount* const payer = pool_.Release(page);
  if (payer != nullptr) ledger_.Settle(payer);
}

void KvCache::ReleaseTable(Sequence& sequence) {
  for (const std::int32_t page : sequence.table) ReleasePage(page);
  sequence.table.clear();
}

CacheInfo KvCache::Info() const {
  return {.name = CacheName(identity_.id),
          .owner = identity_.owner->client,
          .geometry = geometry_,
          .used_pages = pool_.num_used(),
          .lease_duration = lease_,
          .expire_time = expire_time_,
          .eviction_policy = identity_.eviction_policy,
          .routing_token = identity_.routing_token,
          .instance_id = identity_.instance_id,
          .create_time = identity_.create_time,
          .sequences = num_listed(),
          .evicted_sequences = num_evicted_};
}

SequenceInfo KvCache::Info(const Sequence& sequence) const {
  return {.name = SequenceName(identity_.id, sequence.id),
          .owner = sequence.owner->client,
          .lengths = sequence.lengths,
          .pages = static_cast<std::int64_t>(sequence.table.size()),
          .shared_pages = std::count_if(sequence.table.begin(), sequence.table.end(),
                                        [this](std::int32_t page) { return pool_.references(page) > 1; }),
          .create_time = sequence.create_time,
          .use_time = sequence.use_time};
}

}  // namespace ridgeline::engine::kv_cache
