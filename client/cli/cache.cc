// `ridgeline cache`, but for export and import.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/arguments.h"
#include "client/cli/attention_flags.h"
#include "client/cli/cache_document.h"
#include "client/cli/cache_flags.h"
#include "client/cli/cache_names.h"
#include "client/cli/commands.h"
#include "client/cli/geometry_flags.h"

ABSL_FLAG(std::int64_t, capacity_bytes, 0, "Memory of the cache, instead of pages.");
ABSL_FLAG(absl::Duration, lease, absl::Minutes(10), "How long the cache outlives its last use.");
ABSL_FLAG(std::string, eviction, "none",
          "What happens when no page is free: none (the call that needs one fails) or lru (the sequence that was used longest "
          "ago goes).");
ABSL_FLAG(std::string, fork, "", "The new sequence: its last part. Empty: the daemon makes a name.");
ABSL_FLAG(std::int64_t, length, -1, "Tokens to keep in each layer.");
ABSL_DECLARE_FLAG(std::int64_t, kv_heads);
ABSL_DECLARE_FLAG(std::int64_t, head_dim);
ABSL_DECLARE_FLAG(std::int64_t, value_head_dim);

namespace ridgeline::cli {
namespace {

absl::StatusOr<v1::EvictionPolicy> ParsePolicy(const std::string& text) {
  if (text == "none") return v1::EVICTION_POLICY_NONE;
  if (text == "lru") return v1::EVICTION_POLICY_LEAST_RECENTLY_USED;
  return UsageError(absl::StrCat("--eviction is '", text, "'; none and lru are allowed"));
}

google::protobuf::Duration ToMessage(absl::Duration duration) {
  google::protobuf::Duration message;
  message.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  message.set_nanos(static_cast<std::int32_t>(absl::ToInt64Nanoseconds(duration)));
  return message;
}

absl::StatusOr<v1::CreateKvCacheRequest> CreateRequestFromFlags(const CacheName& name) {
  const absl::StatusOr<v1::DataType> type = DataTypeFromFlags();
  if (!type.ok()) return type.status();
  const absl::StatusOr<v1::EvictionPolicy> policy = ParsePolicy(absl::GetFlag(FLAGS_eviction));
  if (!policy.ok()) return policy.status();
  v1::CreateKvCacheRequest request;
  request.set_kv_cache_id(name.cache_id);
  v1::KvCache& cache = *request.mutable_kv_cache();
  cache.set_layers(absl::GetFlag(FLAGS_layers));
  cache.set_kv_heads(static_cast<std::int32_t>(absl::GetFlag(FLAGS_kv_heads)));
  cache.set_head_dim(static_cast<std::int32_t>(absl::GetFlag(FLAGS_head_dim)));
  cache.set_value_head_dim(static_cast<std::int32_t>(absl::GetFlag(FLAGS_value_head_dim)));
  cache.set_data_type(*type == v1::DATA_TYPE_UNSPECIFIED ? v1::DATA_TYPE_FLOAT32 : *type);
  cache.set_page_tokens(absl::GetFlag(FLAGS_page_tokens));
  cache.set_capacity_pages(absl::GetFlag(FLAGS_capacity_pages));
  cache.set_capacity_bytes(absl::GetFlag(FLAGS_capacity_bytes));
  *cache.mutable_lease_duration() = ToMessage(absl::GetFlag(FLAGS_lease));
  cache.set_eviction_policy(*policy);
  return request;
}

absl::StatusOr<Result> Shown(const absl::StatusOr<v1::KvCache>& cache) {
  if (!cache.ok()) return cache.status();
  Result result;
  result.document.sections.push_back(CacheSection(*cache, absl::Now()));
  return result;
}

absl::StatusOr<Result> Shown(const absl::StatusOr<v1::Sequence>& sequence) {
  if (!sequence.ok()) return sequence.status();
  Result result;
  result.document.sections.push_back(SequenceSection(*sequence, absl::Now()));
  return result;
}

// All sequences of a cache, a page of the list after the other.
absl::StatusOr<std::vector<v1::Sequence>> AllSequences(const client::Client& client, const std::string& parent) {
  std::vector<v1::Sequence> sequences;
  v1::ListSequencesRequest request;
  request.set_parent(parent);
  do {
    const absl::StatusOr<v1::ListSequencesResponse> response = client.ListSequences(request);
    if (!response.ok()) return response.status();
    sequences.insert(sequences.end(), response->sequences().begin(), response->sequences().end());
    request.set_page_token(response->next_page_token());
  } while (!request.page_token().empty());
  return sequences;
}

}  // namespace

absl::StatusOr<Result> RunCacheCreate(const client::Client& client) {
  const absl::StatusOr<CacheName> name = ParseCacheName(absl::GetFlag(FLAGS_name));
  if (!name.ok()) return name.status();
  if (name->is_sequence) return Shown(client.CreateSequence(name->cache(), name->sequence_id));
  const absl::StatusOr<v1::CreateKvCacheRequest> request = CreateRequestFromFlags(*name);
  if (!request.ok()) return request.status();
  return Shown(client.CreateKvCache(*request));
}

absl::StatusOr<Result> RunCacheList(const client::Client& client) {
  std::vector<v1::KvCache> caches;
  v1::ListKvCachesRequest request;
  do {
    const absl::StatusOr<v1::ListKvCachesResponse> response = client.ListKvCaches(request);
    if (!response.ok()) return response.status();
    caches.insert(caches.end(), response->kv_caches().begin(), response->kv_caches().end());
    request.set_page_token(response->next_page_token());
  } while (!request.page_token().empty());
  Result result;
  result.document.rows = CacheRows(caches, absl::Now());
  return result;
}

absl::StatusOr<Result> RunCacheShow(const client::Client& client) {
  const absl::StatusOr<CacheName> name = NameFromFlags();
  if (!name.ok()) return name.status();
  if (name->is_sequence) return Shown(client.GetSequence(name->sequence()));
  absl::StatusOr<Result> result = Shown(client.GetKvCache(name->cache()));
  if (!result.ok()) return result.status();
  const absl::StatusOr<std::vector<v1::Sequence>> sequences = AllSequences(client, name->cache());
  if (!sequences.ok()) return sequences.status();
  result->document.rows = SequenceRows(*sequences, absl::Now());
  return result;
}

absl::StatusOr<Result> RunCacheDelete(const client::Client& client) {
  const absl::StatusOr<CacheName> name = NameFromFlags();
  if (!name.ok()) return name.status();
  const std::string full_name = name->is_sequence ? name->sequence() : name->cache();
  absl::Status status = name->is_sequence ? client.DeleteSequence(full_name) : client.DeleteKvCache(full_name);
  if (!status.ok()) return status;
  Result result;
  result.document.sections.push_back({"Deleted", {{"name", "name", full_name}}});
  return result;
}

absl::StatusOr<Result> RunCacheRenew(const client::Client& client) {
  const absl::StatusOr<CacheName> name = CacheFromFlags();
  if (!name.ok()) return name.status();
  v1::RenewKvCacheLeaseRequest request;
  request.set_name(name->cache());
  *request.mutable_lease_duration() = ToMessage(absl::GetFlag(FLAGS_lease));
  return Shown(client.RenewKvCacheLease(request));
}

absl::StatusOr<Result> RunCacheFork(const client::Client& client) {
  const absl::StatusOr<CacheName> name = SequenceFromFlags();
  if (!name.ok()) return name.status();
  return Shown(client.ForkSequence(name->sequence(), absl::GetFlag(FLAGS_fork)));
}

absl::StatusOr<Result> RunCacheTruncate(const client::Client& client) {
  const absl::StatusOr<CacheName> name = SequenceFromFlags();
  if (!name.ok()) return name.status();
  const std::int64_t length = absl::GetFlag(FLAGS_length);
  if (length < 0) return UsageError("the tokens to keep are missing: cache truncate chat/a 100");
  return Shown(client.TruncateSequence(name->sequence(), length));
}

}  // namespace ridgeline::cli
