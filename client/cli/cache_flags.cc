#include "client/cli/cache_flags.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "client/cli/arguments.h"

ABSL_FLAG(std::string, name, "", "A cache (chat) or a sequence (chat/a); full names (kvCaches/chat/sequences/a) too.");

namespace ridgeline::cli {

absl::StatusOr<CacheName> NameFromFlags() {
  const std::string name = absl::GetFlag(FLAGS_name);
  if (name.empty()) return UsageError("a name is missing: of a cache (chat) or a sequence (chat/a)");
  return ParseCacheName(name);
}

absl::StatusOr<CacheName> CacheFromFlags() {
  absl::StatusOr<CacheName> name = NameFromFlags();
  if (name.ok() && name->is_sequence) return UsageError(absl::StrCat(name->sequence(), " is a sequence; a cache is needed"));
  return name;
}

absl::StatusOr<CacheName> SequenceFromFlags() {
  absl::StatusOr<CacheName> name = NameFromFlags();
  if (name.ok() && !name->is_sequence) return UsageError(absl::StrCat(name->cache(), " is a cache; a sequence is needed"));
  return name;
}

}  // namespace ridgeline::cli
