// The gate for fused operations: what came is either a problem that every later step may trust, or an error that names the
// field. Nothing is allocated by the sizes of a request before they have passed.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "server/engine/fuse_problem.h"
#include "server/engine/fuse_request.h"
#include "server/engine/kv_cache/kv_cache_store.h"

namespace ridgeline::engine {

// Dimensions of a tensor, so that shapes stay small beside their tensors.
inline constexpr std::size_t kMaxFusedRank = 16;

// Errors: INVALID_ARGUMENT, UNIMPLEMENTED, with the field's path in ridgeline.v1.FuseRequest; kRopeAppend also NOT_FOUND, and
// it renews the lease of the cache.
absl::StatusOr<FuseProblem> ValidateFuse(const kv_cache::Caller& caller, FuseRequest request, kv_cache::KvCacheStore& store);

}  // namespace ridgeline::engine
