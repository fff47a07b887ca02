// All KV caches of this server: names, leases, quotas, eviction; and the gate through which work gets at pages.
//
// Errors of every method that takes a name: INVALID_ARGUMENT naming the field; NOT_FOUND (KV_CACHE_NOT_FOUND, KV_CACHE_LOST,
// SEQUENCE_NOT_FOUND, SEQUENCE_EVICTED). After any error nothing has changed. Each call that names a cache or a sequence renews
// the cache's lease.
//
// A cache is its maker's: to other clients its name means nothing, or another cache, unless caches are shared
// (KvCacheOptions::shared_caches).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/device/buffer.h"
#include "server/engine/kv_cache/cache_names.h"
#include "server/engine/kv_cache/client_ledger.h"
#include "server/engine/kv_cache/resources.h"
#include "server/engine/kv_cache/sequence_use.h"
#include "server/engine/kv_cache/transfer.h"

namespace ridgeline::engine::kv_cache {

// Thread-safe. The device is called only to allocate and free arenas, never under the mutex.
class KvCacheStore {
 public:
  // Device memory that any lane may use. Errors: RESOURCE_EXHAUSTED (OUT_OF_MEMORY), UNAVAILABLE (DEVICE_FAILED).
  using AllocateArena = std::function<absl::StatusOr<device::Buffer>(std::int64_t size_bytes)>;

  KvCacheStore(KvCacheOptions options, AllocateArena allocate_arena, const base::Clock& clock);
  ~KvCacheStore();  // no selection, use or transfer is left

  // Errors: ALREADY_EXISTS (KV_CACHE_EXISTS); RESOURCE_EXHAUSTED (OUT_OF_MEMORY, QUOTA_EXCEEDED); UNIMPLEMENTED.
  absl::StatusOr<CacheInfo> CreateCache(const Caller& caller, const CreateCacheRequest& request);
  absl::StatusOr<CacheInfo> GetCache(const Caller& caller, std::string_view name);
  // The caller's. Renews no lease.
  absl::StatusOr<ListPage<CacheInfo>> ListCaches(const Caller& caller, const ListRequest& request);
  // FAILED_PRECONDITION (KV_CACHE_BUSY) while a selection, a use or a transfer is in it.
  absl::Status DeleteCache(const Caller& caller, std::string_view name);
  // Unset: the duration stays.
  absl::StatusOr<CacheInfo> RenewLease(const Caller& caller, std::string_view name, std::optional<absl::Duration> duration);

  // Errors: ALREADY_EXISTS (SEQUENCE_EXISTS); RESOURCE_EXHAUSTED (QUOTA_EXCEEDED). An empty id: the server makes one.
  absl::StatusOr<SequenceInfo> CreateSequence(const Caller& caller, std::string_view parent, std::string_view sequence_id);
  absl::StatusOr<SequenceInfo> GetSequence(const Caller& caller, std::string_view name);
  absl::StatusOr<ListPage<SequenceInfo>> ListSequences(const Caller& caller, std::string_view parent,
                                                       const ListRequest& request);
  // FAILED_PRECONDITION (SEQUENCE_BUSY) while a use has it.
  absl::Status DeleteSequence(const Caller& caller, std::string_view name);
  // Of what is committed: waits for no use. Errors as of CreateSequence.
  absl::StatusOr<SequenceInfo> ForkSequence(const Caller& caller, std::string_view name, std::string_view sequence_id);
  // Layers longer than `length` are cut. FAILED_PRECONDITION (SEQUENCE_BUSY) while a use has it.
  absl::StatusOr<SequenceInfo> TruncateSequence(const Caller& caller, std::string_view name, std::int64_t length);

  absl::StatusOr<std::shared_ptr<const SequenceSelection>> Select(const Caller& caller, const SelectRequest& request);
  // Null: other work uses one of the sequences, or a page that would have to be copied; try again when a use has ended. Errors:
  // NOT_FOUND if a sequence has gone since it was selected; RESOURCE_EXHAUSTED (KV_CACHE_FULL, QUOTA_EXCEEDED). Evicts what the
  // cache's policy allows; what was evicted stays so, should the use be aborted.
  absl::StatusOr<std::unique_ptr<SequenceUse>> Begin(const SequenceSelection& selection);

  // A snapshot of a sequence, to be read while the sequence itself goes on.
  absl::StatusOr<std::shared_ptr<const Transfer>> BeginExport(const Caller& caller, std::string_view name);
  // An empty sequence whose name is taken from now on. Errors as of CreateSequence.
  absl::StatusOr<std::shared_ptr<const Transfer>> BeginImport(const Caller& caller, std::string_view parent,
                                                              std::string_view sequence_id);
  // As Select, of a transfer's sequence; the layer is one of the cache's.
  std::shared_ptr<const SequenceSelection> SelectTransfer(const Transfer& transfer, std::int64_t layer,
                                                          std::int64_t append_tokens);
  // Makes an import a sequence like others; no use has it. At most once.
  SequenceInfo Publish(const Transfer& import);

  // Frees the caches whose leases have run out; to be called now and then. Returns how many.
  std::int64_t SweepExpired();

  KvCacheStatistics statistics() const;
  const std::string& instance_id() const { return options_.instance_id; }

 private:
  friend class SequenceSelection;
  friend class SequenceUse;
  friend class Transfer;

  // What has been taken out under the mutex and is freed after it: arenas go back to the device.
  using Garbage = std::vector<std::shared_ptr<KvCache>>;

  struct FoundSequence {
    std::shared_ptr<KvCache> cache;
    std::shared_ptr<Sequence> sequence;
  };

  // Takes the id for a cache that is being made; the account that has it now.
  absl::StatusOr<ClientAccount*> Reserve(const Caller& caller, const std::string& cache_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<KvCache>> FindCache(const Caller& caller, std::string_view cache_id, absl::Time now,
                                                     Garbage& garbage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<FoundSequence> FindSequence(const Caller& caller, std::string_view name, absl::Time now, Garbage& garbage)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Also SEQUENCE_BUSY.
  absl::StatusOr<FoundSequence> FindIdleSequence(const Caller& caller, std::string_view name, absl::Time now, Garbage& garbage)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Made by the caller, in the cache, if the id is new and quotas allow it.
  absl::StatusOr<std::shared_ptr<Sequence>> AddSequence(const Caller& caller, KvCache& cache, const std::string& sequence_id,
                                                        bool hidden, const Sequence* origin, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveCache(std::shared_ptr<KvCache> cache, Garbage& garbage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::int64_t RemoveExpired(absl::Time now, Garbage& garbage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::shared_ptr<const SequenceSelection> MakeSelection(const std::shared_ptr<KvCache>& cache, std::int64_t layer,
                                                         SequenceSelection::Sequences sequences,
                                                         absl::Span<const std::int64_t> append_tokens, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndWork(KvCache& cache);
  void EndUse(SequenceUse& use, bool commit);
  void EndTransfer(const Transfer& transfer);

  const KvCacheOptions options_;
  const AllocateArena allocate_arena_;
  const base::Clock& clock_;

  mutable base::Mutex mutex_;
  ClientLedger ledger_ ABSL_GUARDED_BY(mutex_);
  CacheNames names_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t next_uid_ ABSL_GUARDED_BY(mutex_) = 1;
  KvCacheStatistics gone_ ABSL_GUARDED_BY(mutex_);  // what caches that are gone have counted
};

}  // namespace ridgeline::engine::kv_cache
