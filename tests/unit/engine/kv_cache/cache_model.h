// What a KV cache should do, said plainly: every sequence owns its tokens, and a page is a shared pointer.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/engine/kv_cache/resources.h"
#include "tests/unit/engine/kv_cache/token_memory.h"

namespace ridgeline::engine::kv_cache {

class CacheModel {
 public:
  // Somebody who uses it holds the page; it is free when nobody does.
  struct Page {
    std::string payer;
    bool written = false;
  };
  using PagePtr = std::shared_ptr<Page>;

  struct Sequence {
    std::string id;
    std::string owner;
    bool hidden = false;
    bool evicted = false;
    bool deleted = false;
    std::vector<Tokens> layers;
    std::vector<PagePtr> table;
    int readers = 0;
    bool written = false;

    bool IsBusy() const { return readers > 0 || written; }
  };
  using SequencePtr = std::shared_ptr<Sequence>;

  struct Row {
    SequencePtr sequence;
    Tokens appended;
    std::vector<PagePtr> tail;  // of a row that appends
    std::int64_t tail_begin = 0;
  };
  struct Use {
    std::int64_t layer = 0;
    std::vector<Row> rows;
  };

  enum class Outcome { kBegun, kMustWait, kNotFound, kFull, kQuota };

  CacheModel(std::int64_t layers, std::int64_t page_tokens, std::int64_t capacity_pages, std::int64_t max_pages_per_client,
             EvictionPolicy policy)
      : layers_(layers),
        page_tokens_(page_tokens),
        capacity_pages_(capacity_pages),
        max_pages_per_client_(max_pages_per_client),
        policy_(policy) {}

  SequencePtr Add(const std::string& id, const std::string& owner, bool hidden, const Sequence* origin);
  void Delete(const SequencePtr& sequence);
  void Truncate(Sequence& sequence, std::int64_t length);
  void Touch(const SequencePtr& sequence);
  SequencePtr Find(const std::string& id) const;  // null if there is none, or it is hidden

  // Rows have their sequences and what they append.
  Outcome Begin(Use& use);
  void End(Use& use, bool commit);

  std::int64_t num_used() const { return static_cast<std::int64_t>(LivePages().size()); }
  const std::list<SequencePtr>& by_use() const { return by_use_; }
  std::int64_t num_evicted() const { return num_evicted_; }

 private:
  std::int64_t PagesFor(std::int64_t tokens) const { return (tokens + page_tokens_ - 1) / page_tokens_; }
  PagePtr NewPage(const std::string& payer);
  std::vector<PagePtr> LivePages() const;
  std::int64_t References(const PagePtr& page, const std::vector<SequencePtr>& without) const;
  std::int64_t PaidBy(const std::string& client) const;
  std::int64_t Needed(const Use& use, const Row& row) const;
  bool Evict(const Use& use, std::int64_t shortage);
  bool IsGain(const Use& use, const PagePtr& page, const std::vector<SequencePtr>& victims) const;
  std::int64_t Gain(const Use& use, const std::vector<SequencePtr>& victims) const;

  const std::int64_t layers_;
  const std::int64_t page_tokens_;
  const std::int64_t capacity_pages_;
  const std::int64_t max_pages_per_client_;
  const EvictionPolicy policy_;

  std::list<SequencePtr> by_use_;           // that are there, least recently used first
  std::vector<SequencePtr> dropped_;        // deleted while in use: their pages go when the use ends
  std::vector<std::weak_ptr<Page>> pages_;  // that were ever made and may still live
  std::int64_t num_evicted_ = 0;
};

}  // namespace ridgeline::engine::kv_cache
