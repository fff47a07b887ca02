// What a plan may be asked for.
#pragma once

#include "absl/status/statusor.h"
#include "server/engine/memory_plan/memory_plan.h"

namespace ridgeline::engine {

// The request with its defaults filled in. Errors: INVALID_ARGUMENT naming the field.
absl::StatusOr<MemoryPlanRequest> CheckRequest(MemoryPlanRequest request);

}  // namespace ridgeline::engine
