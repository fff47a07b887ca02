// Lists in pages: entries by id, each page going on after the last id of the one before. What is made or deleted meanwhile
// shows or not; everything else shows exactly once.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/engine/kv_cache/resources.h"

namespace ridgeline::engine::kv_cache {

// Where a page begins and how many entries it has at most.
struct ListPlace {
  std::string collection;  // what precedes an id in names, e.g. "kvCaches/"
  std::string after_id;    // empty: from the beginning
  std::size_t max_entries = 0;
};

// Errors: INVALID_ARGUMENT naming page_size or page_token.
absl::StatusOr<ListPlace> ParseListRequest(std::string collection, const ListRequest& request);

// Opaque to clients; good for this collection alone.
std::string MakePageToken(const ListPlace& place, std::string_view last_id);

// The entries of a std::map by id for which `is_listed` is true; the token of the next page if there are more.
template <typename Map, typename IsListed>
std::vector<typename Map::mapped_type> TakePage(const Map& map, const ListPlace& place, IsListed is_listed,
                                                std::string& next_page_token) {
  std::vector<typename Map::mapped_type> entries;
  std::string_view last_id;
  for (auto next = map.upper_bound(place.after_id); next != map.end(); ++next) {
    if (!is_listed(next->second)) continue;
    if (entries.size() == place.max_entries) {
      next_page_token = MakePageToken(place, last_id);
      break;
    }
    entries.push_back(next->second);
    last_id = next->first;
  }
  return entries;
}

}  // namespace ridgeline::engine::kv_cache
