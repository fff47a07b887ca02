#include "server/engine/kv_cache/errors.h"

#include "absl/strings/str_cat.h"
#include "server/base/error.h"
#include "server/engine/kv_cache/resource_name.h"

namespace ridgeline::engine::kv_cache {
absl::Status CacheNotFound(std::string_view cache_id) {
  return base::WithReason(
      absl::NotFoundError(absl::StrCat("there is no ", CacheName(cache_id), ": never made, deleted, or its lease ran out")),
      base::kReasonKvCacheNotFound);
}

absl::Status CacheLost(std::string_view cache_id) {
  return base::WithReason(absl::NotFoundError(absl::StrCat(CacheName(cache_id),
                                                           " was on another instance of the server: prefill again, or "
                                                           "import an export")),
                          base::kReasonKvCacheLost);
}

absl::Status CacheExists(std::string_view cache_id) {
  return base::WithReason(absl::AlreadyExistsError(absl::StrCat(CacheName(cache_id), " exists already")),
                          base::kReasonKvCacheExists);
}

absl::Status CacheBusy(std::string_view cache_id) {
  return base::WithReason(absl::FailedPreconditionError(absl::StrCat("waiting or running work uses ", CacheName(cache_id),
                                                                     ": cancel it or wait for it, and call again")),
                          base::kReasonKvCacheBusy);
}

absl::Status SequenceNotFound(std::string_view cache_id, std::string_view sequence_id) {
  return base::WithReason(absl::NotFoundError(absl::StrCat("there is no ", SequenceName(cache_id, sequence_id))),
                          base::kReasonSequenceNotFound);
}

absl::Status SequenceEvicted(std::string_view cache_id, std::string_view sequence_id) {
  return base::WithReason(absl::NotFoundError(absl::StrCat(SequenceName(cache_id, sequence_id),
                                                           " was evicted: others needed its pages; make it and prefill again")),
                          base::kReasonSequenceEvicted);
}

absl::Status SequenceExists(std::string_view cache_id, std::string_view sequence_id) {
  return base::WithReason(absl::AlreadyExistsError(absl::StrCat(SequenceName(cache_id, sequence_id), " exists already")),
                          base::kReasonSequenceExists);
}

absl::Status SequenceBusy(std::string_view cache_id, std::string_view sequence_id) {
  return base::WithReason(absl::FailedPreconditionError(absl::StrCat("running work uses ", SequenceName(cache_id, sequence_id),
                                                                     ": wait for it, and call again")),
                          base::kReasonSequenceBusy);
}

absl::Status CacheFull(std::string_view cache_id, EvictionPolicy policy, std::int64_t needed_pages, std::int64_t free_pages,
                       std::int64_t capacity_pages) {
  const char* const evicted =
      policy == EvictionPolicy::kNone ? "its policy evicts nothing" : "evicting every sequence that is not in use would not do";
  return base::WithReason(
      absl::ResourceExhaustedError(absl::StrCat(CacheName(cache_id), " is full: ", needed_pages, " pages are needed, ",
                                                free_pages, " of ", capacity_pages, " are free, and ", evicted)),
      base::kReasonKvCacheFull);
}

absl::Status QuotaExceeded(const char* whose, const char* what, std::int64_t held, std::int64_t wanted, std::int64_t quota) {
  return base::WithReason(absl::ResourceExhaustedError(absl::StrCat(whose, " has ", held, " ", what, " and would get ", wanted,
                                                                    " more; the limit is ", quota)),
                          base::kReasonQuotaExceeded);
}

}  // namespace ridgeline::engine::kv_cache
