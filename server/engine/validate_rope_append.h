// The part of the gate for fused operations that has to do with KV caches.
#pragma once

#include "absl/status/statusor.h"
#include "server/engine/fuse_problem.h"
#include "server/engine/fuse_request.h"
#include "server/engine/kv_cache/kv_cache_store.h"

namespace ridgeline::engine {

// Of a request for kRopeAppend. Errors as ValidateFuse's.
absl::StatusOr<FuseProblem> ValidateRopeAppend(const kv_cache::Caller& caller, FuseRequest& request,
                                               kv_cache::KvCacheStore& store);

}  // namespace ridgeline::engine
