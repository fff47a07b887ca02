// KV caches between the wire's messages and the engine's structs.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ridgeline/v1/kv_cache.pb.h"
#include "server/device/buffer.h"
#include "server/engine/append_request.h"
#include "server/engine/kv_cache/resources.h"

namespace ridgeline::api {

// INVALID_ARGUMENT for an enumerator that this server does not know; all else is the engine's to check.
absl::StatusOr<engine::kv_cache::CreateCacheRequest> FromMessage(const v1::CreateKvCacheRequest& message);

// Of the message's bytes; it has no tensors that would need their owner.
absl::StatusOr<engine::kv_cache::CreateCacheRequest> ParseCreateKvCacheRequest(absl::Span<const device::HostSlice> wire,
                                                                               std::shared_ptr<const void> owner);

// As ParseAttendRequest.
absl::StatusOr<engine::AppendKeyValueRequest> ParseAppendKeyValueRequest(absl::Span<const device::HostSlice> wire,
                                                                         std::shared_ptr<const void> owner);

// page_size and page_token of ListKvCachesRequest and ListSequencesRequest.
template <typename ListMessage>
engine::kv_cache::ListRequest ListRequestOf(const ListMessage& message) {
  return {.page_size = message.page_size(), .page_token = message.page_token()};
}

v1::KvCache ToMessage(const engine::kv_cache::CacheInfo& info);
v1::Sequence ToMessage(const engine::kv_cache::SequenceInfo& info);
v1::ListKvCachesResponse ToMessage(const engine::kv_cache::ListPage<engine::kv_cache::CacheInfo>& page);
v1::ListSequencesResponse ToMessage(const engine::kv_cache::ListPage<engine::kv_cache::SequenceInfo>& page);
v1::AppendKeyValueResponse ToMessage(const engine::AppendKeyValueResult& result);

}  // namespace ridgeline::api
