// The terms of a memory plan. Symbols of the formulas: N parameters, L layers, s tokens, b sequences, h hidden_size, a query
// heads, k KV heads, d head_dim, i intermediate_size, v vocabulary_size, x experts and y of them for each token, e bytes of
// data_type; t tensor-parallel, p pipeline-parallel and z data-parallel devices.
#pragma once

#include <cstdint>
#include <vector>

#include "server/engine/memory_plan/memory_plan.h"

namespace ridgeline::engine {

// N, over all devices. `request` was checked, here and below.
std::int64_t CountParameters(const ModelGeometry& model);

// On one device; those that are not 0.
std::vector<MemoryTerm> PlanTerms(const MemoryPlanRequest& request);

}  // namespace ridgeline::engine
