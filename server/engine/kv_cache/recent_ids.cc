#include "server/engine/kv_cache/recent_ids.h"

#include <iterator>
#include <utility>

#include "server/base/check.h"

namespace ridgeline::engine::kv_cache {

void RecentIds::Add(std::string id) {
  RIDGELINE_CHECK(!Contains(id));
  if (order_.size() == capacity_) Remove(order_.front());
  order_.push_back(std::move(id));
  places_[order_.back()] = std::prev(order_.end());
}

void RecentIds::Remove(std::string_view id) {
  const auto found = places_.find(id);
  if (found == places_.end()) return;
  const auto place = found->second;
  places_.erase(found);  // before the string that is its key
  order_.erase(place);
}

bool RecentIds::Contains(std::string_view id) const { return places_.contains(id); }

}  // namespace ridgeline::engine::kv_cache
