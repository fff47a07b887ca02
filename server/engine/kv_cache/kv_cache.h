// One cache: its arena, its pages and its sequences. For KvCacheStore alone, whose mutex guards all of it.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/device/buffer.h"
#include "server/engine/kv_cache/client_ledger.h"
#include "server/engine/kv_cache/page_pool.h"
#include "server/engine/kv_cache/recent_ids.h"
#include "server/engine/kv_cache/resources.h"
#include "server/engine/kv_cache/sequence_use.h"

namespace ridgeline::engine::kv_cache {

// A list of pages and a length for each layer: what is committed. A use keeps what it adds to itself until it commits.
class Sequence {
 public:
  enum class State : std::uint8_t { kListed, kHidden /* of a transfer */, kDeleted, kEvicted };

  bool IsGone() const { return state == State::kDeleted || state == State::kEvicted; }
  bool IsBusy() const { return is_written || num_readers > 0; }
  // Of its longest layer.
  std::int64_t tokens() const;

  std::string id;
  ClientAccount* owner = nullptr;  // null once it is gone
  State state = State::kListed;
  std::vector<std::int32_t> table;    // pages, in the order of the tokens
  std::vector<std::int64_t> lengths;  // tokens of each layer
  absl::Time create_time;
  absl::Time use_time;
  std::int64_t num_readers = 0;  // uses that read it
  bool is_written = false;       // a use appends to it
  std::list<Sequence*>::iterator by_use;
};

using Sequences = std::map<std::string, std::shared_ptr<Sequence>, std::less<>>;

// Fields that are fixed when the cache is made.
struct CacheIdentity {
  std::string id;
  std::uint64_t uid;
  ClientAccount* owner;
  EvictionPolicy eviction_policy;
  std::string routing_token;
  absl::Time create_time;
};

class KvCache {
 public:
  KvCache(CacheIdentity identity, const Geometry& geometry, device::Buffer arena, ClientLedger& ledger);

  const CacheIdentity& identity() const { return identity_; }
  const Geometry& geometry() const { return geometry_; }
  const device::Buffer& arena() const { return arena_; }
  const PagePool& pool() const { return pool_; }
  const Sequences& sequences() const { return sequences_; }
  std::int64_t num_evicted() const { return num_evicted_; }
  std::int64_t num_copied() const { return num_copied_; }

  // ---- Lease. Work (selections, uses, transfers) keeps the cache from expiring and from being deleted.
  void Renew(absl::Time now);
  void SetLease(absl::Duration duration, absl::Time now);
  bool IsExpired(absl::Time now) const { return num_works_ == 0 && now >= expire_time_; }
  absl::Duration lease() const { return lease_; }
  absl::Time expire_time() const { return expire_time_; }
  void BeginWork() { ++num_works_; }
  void EndWork() { --num_works_; }
  std::int64_t num_works() const { return num_works_; }

  // ---- Sequences.
  // Errors: NOT_FOUND.
  absl::StatusOr<std::shared_ptr<Sequence>> Find(std::string_view id) const;
  // Errors: ALREADY_EXISTS.
  absl::Status CheckNew(std::string_view id) const;
  // A sequence with a new id. With `origin` it has the same tokens and shares the pages.
  std::shared_ptr<Sequence> Add(std::string id, std::string_view client, Sequence::State state, const Sequence* origin,
                                absl::Time now);
  // Its pages are free at once, or, if a use has it, when that has ended.
  void Delete(Sequence& sequence);
  void Publish(Sequence& sequence) { sequence.state = Sequence::State::kListed; }
  void Truncate(Sequence& sequence, std::int64_t length);
  // Gives all pages back to those who paid, before the cache goes.
  void Clear();

  // ---- Uses.
  // As KvCacheStore::Begin; fills `use`. False: other work is in the way.
  absl::StatusOr<bool> Begin(SequenceUse& use, absl::Span<const std::int64_t> append_tokens, std::int64_t max_pages_per_client);
  void End(SequenceUse& use, bool commit);

  void Touch(Sequence& sequence, absl::Time now);

 private:
  const CacheIdentity identity_;
  const Geometry geometry_;
  const device::Buffer arena_;
  ClientLedger& ledger_;

  absl::Duration lease_ = kDefaultLease;
  absl::Time expire_time_;
  std::int64_t num_works_ = 0;

  PagePool pool_;
  Sequences sequences_;
  std::list<Sequence*> by_use_;  // of all, least recently used first
  RecentIds evicted_;
  std::int64_t num_evicted_ = 0;
  std::int64_t num_copied_ = 0;
};

}  // namespace ridgeline::engine::kv_cache
