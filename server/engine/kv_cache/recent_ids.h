// Remembers the ids that were added last.
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"

namespace ridgeline::engine::kv_cache {

// At most `capacity`, at least 1: a further one pushes out the oldest. Not thread-safe.
class RecentIds {
 public:
  explicit RecentIds(std::size_t capacity) : capacity_(capacity) {}

  // One that is not remembered.
  void Add(std::string id);
  // Forgets it, if it is remembered.
  void Remove(std::string_view id);
  bool Contains(std::string_view id) const;
  std::size_t size() const { return order_.size(); }

 private:
  const std::size_t capacity_;
  std::list<std::string> order_;  // oldest first
  // The keys are the list's strings.
  absl::flat_hash_map<std::string_view, std::list<std::string>::const_iterator> places_;
};

}  // namespace ridgeline::engine::kv_cache
