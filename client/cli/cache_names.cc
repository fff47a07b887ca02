#include "client/cli/cache_names.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/arguments.h"

namespace ridgeline::cli {

std::string CacheName::cache() const { return absl::StrCat("kvCaches/", cache_id); }
std::string CacheName::sequence() const { return absl::StrCat(cache(), "/sequences/", sequence_id); }

absl::StatusOr<CacheName> ParseCacheName(absl::string_view text) {
  std::vector<std::string> parts = absl::StrSplit(text, '/');
  if (parts[0] == "kvCaches") {
    const bool has_collections = parts.size() == 2 || (parts.size() == 4 && parts[2] == "sequences");
    if (has_collections && parts.size() == 4) parts.erase(parts.begin() + 2);
    if (has_collections) parts.erase(parts.begin());
  }
  if (parts.size() == 1) return CacheName{parts[0], "", false};
  if (parts.size() == 2) return CacheName{parts[0], parts[1], true};
  return UsageError(absl::StrCat("'", text, "' is no name of a cache (chat) or a sequence (chat/a)"));
}

}  // namespace ridgeline::cli
