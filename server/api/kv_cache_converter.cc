#include "server/api/kv_cache_converter.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/api/data_type.h"
#include "server/api/tensor_converter.h"
#include "server/api/wire_reader.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::api {
namespace {

using engine::kv_cache::EvictionPolicy;

absl::StatusOr<EvictionPolicy> FromMessage(v1::EvictionPolicy policy) {
  switch (policy) {
    case v1::EVICTION_POLICY_UNSPECIFIED:
    case v1::EVICTION_POLICY_NONE:
      return EvictionPolicy::kNone;
    case v1::EVICTION_POLICY_LEAST_RECENTLY_USED:
      return EvictionPolicy::kLeastRecentlyUsed;
    default:
      return base::InvalidField("kv_cache.eviction_policy", absl::StrCat("eviction_policy is ", static_cast<int>(policy),
                                                                         "; there are 1 (none) and 2 (least recently used)"));
  }
}

v1::EvictionPolicy ToMessage(EvictionPolicy policy) {
  return policy == EvictionPolicy::kNone ? v1::EVICTION_POLICY_NONE : v1::EVICTION_POLICY_LEAST_RECENTLY_USED;
}

}  // namespace

absl::StatusOr<engine::kv_cache::CreateCacheRequest> FromMessage(const v1::CreateKvCacheRequest& message) {
  const v1::KvCache& cache = message.kv_cache();
  engine::kv_cache::CreateCacheRequest request;
  request.cache_id = message.kv_cache_id();
  request.geometry = {.layers = cache.layers(),
                      .kv_heads = cache.kv_heads(),
                      .head_dim = cache.head_dim(),
                      .value_head_dim = cache.value_head_dim(),
                      .page_tokens = cache.page_tokens(),
                      .capacity_pages = cache.capacity_pages(),
                      .capacity_bytes = cache.capacity_bytes()};
  RIDGELINE_ASSIGN_OR_RETURN(request.geometry.data_type, FromMessage(cache.data_type(), "kv_cache.data_type"));
  RIDGELINE_ASSIGN_OR_RETURN(request.eviction_policy, FromMessage(cache.eviction_policy()));
  if (cache.has_lease_duration()) request.lease_duration = FromMessage(cache.lease_duration());
  return request;
}

absl::StatusOr<engine::kv_cache::CreateCacheRequest> ParseCreateKvCacheRequest(absl::Span<const device::HostSlice> wire,
                                                                               std::shared_ptr<const void> /*owner*/) {
  v1::CreateKvCacheRequest message;
  RIDGELINE_ASSIGN_OR_RETURN(const SplitMessage split, Split(*message.GetDescriptor(), wire));
  RIDGELINE_RETURN_IF_ERROR(ParseSkeleton(split, message));
  return FromMessage(message);
}

absl::StatusOr<engine::AppendKeyValueRequest> ParseAppendKeyValueRequest(absl::Span<const device::HostSlice> wire,
                                                                         std::shared_ptr<const void> owner) {
  RIDGELINE_ASSIGN_OR_RETURN(const SplitMessage split, Split(*v1::AppendKeyValueRequest::descriptor(), wire));
  v1::AppendKeyValueRequest message;
  RIDGELINE_RETURN_IF_ERROR(ParseSkeleton(split, message));
  const Source source{split, std::move(owner)};
  engine::AppendKeyValueRequest request;
  request.sequences.assign(message.sequences().begin(), message.sequences().end());
  request.layer = message.layer();
  RIDGELINE_RETURN_IF_ERROR(Convert(message.has_key(), message.key(), "key", source, request.key));
  RIDGELINE_RETURN_IF_ERROR(Convert(message.has_value(), message.value(), "value", source, request.value));
  request.lengths.assign(message.lengths().begin(), message.lengths().end());
  return request;
}

v1::KvCache ToMessage(const engine::kv_cache::CacheInfo& info) {
  v1::KvCache message;
  message.set_name(info.name);
  message.set_layers(static_cast<std::int32_t>(info.geometry.layers));
  message.set_kv_heads(static_cast<std::int32_t>(info.geometry.kv_heads));
  message.set_head_dim(static_cast<std::int32_t>(info.geometry.head_dim));
  message.set_value_head_dim(static_cast<std::int32_t>(info.geometry.value_head_dim));
  message.set_data_type(ToMessage(info.geometry.data_type));
  message.set_page_tokens(static_cast<std::int32_t>(info.geometry.page_tokens));
  message.set_capacity_pages(info.geometry.capacity_pages);
  message.set_capacity_bytes(info.geometry.capacity_pages * info.geometry.PageBytes());
  message.set_used_pages(info.used_pages);
  *message.mutable_lease_duration() = ToMessage(info.lease_duration);
  *message.mutable_expire_time() = ToMessage(info.expire_time);
  message.set_eviction_policy(ToMessage(info.eviction_policy));
  message.set_routing_token(info.routing_token);
  message.set_instance_id(info.instance_id);
  *message.mutable_create_time() = ToMessage(info.create_time);
  message.set_sequence_count(info.sequences);
  message.set_evicted_sequence_count(info.evicted_sequences);
  message.set_client(info.owner);
  return message;
}

v1::Sequence ToMessage(const engine::kv_cache::SequenceInfo& info) {
  v1::Sequence message;
  message.set_name(info.name);
  message.mutable_lengths()->Add(info.lengths.begin(), info.lengths.end());
  message.set_page_count(info.pages);
  message.set_shared_page_count(info.shared_pages);
  *message.mutable_create_time() = ToMessage(info.create_time);
  *message.mutable_use_time() = ToMessage(info.use_time);
  message.set_client(info.owner);
  return message;
}

v1::ListKvCachesResponse ToMessage(const engine::kv_cache::ListPage<engine::kv_cache::CacheInfo>& page) {
  v1::ListKvCachesResponse message;
  for (const engine::kv_cache::CacheInfo& cache : page.items) *message.add_kv_caches() = ToMessage(cache);
  message.set_next_page_token(page.next_page_token);
  return message;
}

v1::ListSequencesResponse ToMessage(const engine::kv_cache::ListPage<engine::kv_cache::SequenceInfo>& page) {
  v1::ListSequencesResponse message;
  for (const engine::kv_cache::SequenceInfo& sequence : page.items) *message.add_sequences() = ToMessage(sequence);
  message.set_next_page_token(page.next_page_token);
  return message;
}

v1::AppendKeyValueResponse ToMessage(const engine::AppendKeyValueResult& result) {
  v1::AppendKeyValueResponse message;
  message.mutable_lengths()->Add(result.lengths.begin(), result.lengths.end());
  return message;
}

}  // namespace ridgeline::api
