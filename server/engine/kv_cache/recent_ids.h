// Remembers the ids that were added last.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"

namespace ridgeline::engine::kv_cache {

// At most `capacity`, at least 1: a further one pushes out the oldest. Not thread-safe.
class RecentIds {
 public:
  explicit RecentIds(std::size_t capacity) : capacity_(capacity) {}

  void Add(const std::string& id);
  // Forgets it.
  void Remove(std::string_view id);
  bool Contains(std::string_view id) const;
  std::size_t size() const { return newest_.size(); }

 private:
  struct Entry {
    std::string id;
    std::uint64_t number;
  };

  const std::size_t capacity_;
  std::deque<Entry> order_;  // oldest first; entries whose number is not the newest are void
  absl::flat_hash_map<std::string, std::uint64_t> newest_;
  std::uint64_t next_number_ = 0;
};

}  // namespace ridgeline::engine::kv_cache
