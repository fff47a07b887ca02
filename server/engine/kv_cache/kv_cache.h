// One cache: its arena, its pages and its sequences. For KvCacheStore alone, whose mutex guards all but what never changes.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/device/buffer.h"
#include "server/engine/kv_cache/client_ledger.h"
#include "server/engine/kv_cache/geometry.h"
#include "server/engine/kv_cache/page_pool.h"
#include "server/engine/kv_cache/recent_ids.h"
#include "server/engine/kv_cache/resources.h"
#include "server/engine/kv_cache/sequence.h"
#include "server/engine/kv_cache/sequence_use.h"

namespace ridgeline::engine::kv_cache {

// What is fixed when a cache is made.
struct CacheIdentity {
  std::string id;
  std::uint64_t uid = 0;
  ClientAccount* owner = nullptr;
  EvictionPolicy eviction_policy = EvictionPolicy::kNone;
  std::string routing_token;
  std::string instance_id;
  absl::Time create_time;
};

class KvCache {
 public:
  using Sequences = std::map<std::string, std::shared_ptr<Sequence>, std::less<>>;

  // `pool` has the geometry's pages; `ledger` outlives the cache.
  KvCache(CacheIdentity identity, const Geometry& geometry, device::Buffer arena, PagePool pool, absl::Duration lease,
          ClientLedger& ledger);

  // Never change; need no mutex.
  const CacheIdentity& identity() const { return identity_; }
  const Geometry& geometry() const { return geometry_; }
  const device::Buffer& arena() const { return arena_; }

  // ---- Lease. Works (selections, uses, transfers) keep the cache from expiring and from being deleted.
  void Renew(absl::Time now) { expire_time_ = now + lease_; }
  void SetLease(absl::Duration lease) { lease_ = lease; }
  void BeginWork() { ++num_works_; }
  void EndWork() { --num_works_; }
  bool HasWork() const { return num_works_ > 0; }
  bool IsExpired(absl::Time now) const { return !HasWork() && now >= expire_time_; }

  // ---- Sequences.
  // Errors: NOT_FOUND.
  absl::StatusOr<std::shared_ptr<Sequence>> Find(std::string_view sequence_id) const;
  bool HasId(std::string_view sequence_id) const { return sequences_.find(sequence_id) != sequences_.end(); }
  // A sequence with a new id, empty or with the tokens of `origin`, whose pages it shares.
  std::shared_ptr<Sequence> Add(std::string sequence_id, std::string_view client, Sequence::State state, const Sequence* origin,
                                absl::Time now);
  // Its pages are free at once or, if a use has it, when that has ended. Not of one that is gone.
  void Delete(Sequence& sequence) { Remove(sequence, Sequence::State::kDeleted); }
  // All sequences, before the cache goes.
  void DeleteAll();
  // Makes a hidden sequence one that others see.
  void Publish(Sequence& sequence);
  // Cuts the layers that are longer. Nothing uses the sequence.
  void Truncate(Sequence& sequence, std::int64_t length);
  // It is used now: it is the last to be evicted.
  void Touch(Sequence& sequence, absl::Time now);

  // ---- Uses (kv_cache_uses.cc).
  // As KvCacheStore::Begin, for a use that has its members; true if it has begun.
  absl::StatusOr<bool> Begin(SequenceUse& use, absl::Span<const std::int64_t> append_tokens, std::int64_t max_pages_per_client);
  void End(SequenceUse& use, bool commit);

  // ---- State.
  CacheInfo Info() const;
  SequenceInfo Info(const Sequence& sequence) const;
  const Sequences& sequences() const { return sequences_; }
  std::int64_t num_listed() const { return static_cast<std::int64_t>(sequences_.size()) - num_hidden_; }
  const PagePool& pool() const { return pool_; }
  std::int64_t num_evicted() const { return num_evicted_; }
  std::int64_t num_copied() const { return num_copied_; }

 private:
  using Member = SequenceUse::Member;

  absl::Status CheckPresent(absl::Span<const Member> members) const;
  void LayOut(SequenceUse& use, absl::Span<const std::int64_t> append_tokens) const;
  bool MustWait(const Member& member) const;
  std::int64_t NeededPages(const Member& member) const;
  absl::Status CheckQuotas(absl::Span<const Member> members, std::int64_t max_pages_per_client) const;
  absl::Status Full(std::int64_t needed_pages) const;
  absl::Status MakeRoom(absl::Span<const Member> members, std::int64_t needed_pages);
  void TakePages(SequenceUse& use);
  void EndTail(const Member& member, absl::Span<const std::int32_t> tail, bool commit);

  void Remove(Sequence& sequence, Sequence::State state);
  void ReleasePage(std::int32_t page);
  void ReleaseTable(Sequence& sequence);

  const CacheIdentity identity_;
  const Geometry geometry_;
  const device::Buffer arena_;
  ClientLedger& ledger_;

  absl::Duration lease_;
  absl::Time expire_time_;
  std::int64_t num_works_ = 0;

  PagePool pool_;
  Sequences sequences_;          // those that are not gone
  std::list<Sequence*> by_use_;  // the same, least recently used first
  std::int64_t num_hidden_ = 0;
  RecentIds evicted_;
  std::int64_t num_evicted_ = 0;
  std::int64_t num_copied_ = 0;
};

}  // namespace ridgeline::engine::kv_cache
