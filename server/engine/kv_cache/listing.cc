#include "server/engine/kv_cache/listing.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/base/error.h"
#include "server/engine/kv_cache/resource_name.h"

namespace ridgeline::engine::kv_cache {
namespace {

constexpr std::size_t kMaxTokenLength = 256;  // longer than any of ours

absl::StatusOr<std::string> ParsePageToken(std::string_view collection, const std::string& page_token) {
  std::string name;
  if (page_token.size() <= kMaxTokenLength && absl::WebSafeBase64Unescape(page_token, &name) &&
      name.compare(0, collection.size(), collection) == 0 && IsId(std::string_view(name).substr(collection.size()))) {
    return name.substr(collection.size());
  }
  return base::InvalidField("page_token", "is none that this list gave; next_page_token of the answer before is needed");
}

}  // namespace

absl::StatusOr<ListPlace> ParseListRequest(std::string collection, const ListRequest& request) {
  if (request.page_size < 0) {
    return base::InvalidField("page_size", absl::StrCat("is ", request.page_size, "; at least 0 is needed"));
  }
  const int size = request.page_size == 0 ? kDefaultListSize : std::min(request.page_size, kMaxListSize);
  ListPlace place;
  place.collection = std::move(collection);
  place.max_entries = static_cast<std::size_t>(size);
  if (request.page_token.empty()) return place;
  absl::StatusOr<std::string> after_id = ParsePageToken(place.collection, request.page_token);
  if (!after_id.ok()) return after_id.status();
  place.after_id = *std::move(after_id);
  return place;
}

std::string MakePageToken(const ListPlace& place, std::string_view last_id) {
  return absl::WebSafeBase64Escape(place.collection + std::string(last_id));
}

}  // namespace ridgeline::engine::kv_cache
