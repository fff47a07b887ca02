// How work gets at the pages of sequences.
//
//   Select (at submission) ─► SequenceSelection ─► Begin (when the launch leaves) ─► SequenceUse ─► Commit or Abort (when the
//     checks, renews the lease     │   ▲               takes pages, all or none          │            device has let go of it)
//                                  │   └── null: a sequence is in use, try later         └─► tables, page copies, lengths
//                                  └── while it lives the cache is not deleted and does not expire
//
// A use is of one request: a launch combines those of several, and one that fails leaves the others alone. Uses that only read
// share a sequence; one that appends has it for itself. Neither outlives its store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "kernels/kv_cache/kv_cache.h"
#include "server/device/buffer.h"
#include "server/engine/kv_cache/geometry.h"

namespace ridgeline::engine::kv_cache {

class KvCache;
class KvCacheStore;
struct Sequence;

// What a request names.
struct SelectRequest {
  std::vector<std::string> sequences =
      {};  // kvCaches/{kv_cache}/sequences/{sequence}; one cache, each at most once, at least one
  std::int64_t layer = 0;
  std::vector<std::int64_t> append_tokens = {};  // one for each sequence, >= 0; empty: nothing is appended

  // Where these fields are in the request message, for errors.
  const char* sequences_field = "paged.sequences";
  const char* layer_field = "paged.layer";
};

// The sequences of one request, found and checked once. Immutable; thread-safe.
class SequenceSelection {
 public:
  ~SequenceSelection();
  SequenceSelection(const SequenceSelection&) = delete;
  SequenceSelection& operator=(const SequenceSelection&) = delete;

  const Geometry& geometry() const;
  std::uint64_t cache_uid() const;  // never used again for another cache: works of one launch have the same
  std::int64_t layer() const { return layer_; }
  std::size_t size() const { return sequences_.size(); }
  std::int64_t append_tokens(std::size_t row) const { return append_tokens_.empty() ? 0 : append_tokens_[row]; }
  // Tokens of the layer when the selection was made; by the time that a use begins, other work may have changed them.
  std::int64_t expected_tokens(std::size_t row) const { return expected_tokens_[row]; }

 private:
  friend class KvCacheStore;
  friend class SequenceUse;

  using Sequences = absl::InlinedVector<std::shared_ptr<Sequence>, 1>;

  SequenceSelection(KvCacheStore& store, std::shared_ptr<KvCache> cache, std::int64_t layer);

  KvCacheStore& store_;
  const std::shared_ptr<KvCache> cache_;
  const std::int64_t layer_;
  Sequences sequences_;
  absl::InlinedVector<std::int64_t, 1> append_tokens_;  // empty: reads
  absl::InlinedVector<std::int64_t, 1> expected_tokens_;
};

// One sequence in a use: tokens [0, begin_tokens) are stored, [begin_tokens, end_tokens) are what the work appends. Its block
// table is head followed by tail, PagesFor(end_tokens) pages; both stay as they are until the use ends.
struct UsedSequence {
  std::int64_t begin_tokens = 0;
  std::int64_t end_tokens = 0;
  absl::Span<const std::int32_t> table_head;  // pages that are only read
  absl::Span<const std::int32_t> table_tail;  // pages that the work writes; empty if it appends nothing
};

// Ends exactly once: Commit, Abort or the destructor, which aborts; and only when the device has let go of the work, since
// afterwards its pages may be written by other work and nothing here may be read. Not thread-safe, but each call may come from
// another thread.
class SequenceUse {
 public:
  // What the cache keeps of a sequence. Its tail is entries [tail_begin, tail_end) of the table: those that it has already are
  // written in place, or replaced by copies if they are shared; the others are new.
  struct Member {
    std::shared_ptr<Sequence> sequence;
    std::int64_t tail_begin = 0;
    std::int64_t tail_end = 0;

    bool IsRead() const { return tail_begin == tail_end; }
  };

  ~SequenceUse();
  SequenceUse(const SequenceUse&) = delete;
  SequenceUse& operator=(const SequenceUse&) = delete;

  const Geometry& geometry() const;
  const device::Buffer& arena() const;
  std::int64_t layer() const { return layer_; }
  absl::Span<const UsedSequence> sequences() const { return used_; }  // in the order of the selection
  // To be queued before the append: shared pages that the append would write.
  absl::Span<const kernels::kv_cache::PageCopy> page_copies() const { return copies_; }

  // The appended tokens are stored.
  void Commit();
  // Nothing that was stored has changed; the pages taken are free again.
  void Abort();

 private:
  friend class KvCache;
  friend class KvCacheStore;

  SequenceUse(KvCacheStore& store, const SequenceSelection& selection);

  KvCacheStore& store_;
  std::shared_ptr<KvCache> cache_;  // null unless it has begun and not ended
  const std::int64_t layer_;
  absl::InlinedVector<UsedSequence, 1> used_;
  absl::InlinedVector<Member, 1> members_;           // in the same order
  absl::InlinedVector<std::int32_t, 2> tail_pages_;  // of all members, one after the other
  absl::InlinedVector<kernels::kv_cache::PageCopy, 1> copies_;
};

}  // namespace ridgeline::engine::kv_cache
