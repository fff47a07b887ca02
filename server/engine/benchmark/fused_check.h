// Whether a fused operation's results are right: rows spread over its tensors, against fused_row.h.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/fused/fused.h"
#include "server/engine/benchmark/fused_row.h"
#include "server/engine/benchmark/host_tensor.h"

namespace ridgeline::engine::benchmark {

// Those that the operation lacks have no rows.
struct FusedTensors {
  HostTensor input, other, weight, bias, output, residual_output;
};

// The first row, the last, and some between. INTERNAL where a result is wrong.
absl::Status CheckFused(const kernels::fused::FusedShape& shape, kernels::fused::Mode mode, const FusedTensors& tensors);

// One row of results.
absl::Status CheckFusedRow(const kernels::fused::FusedShape& shape, kernels::fused::Mode mode, const FusedRowInputs& inputs,
                           const std::vector<float>& got);

// Rows of `num_rows` that are looked at.
std::vector<std::int64_t> CheckedRows(std::int64_t num_rows);

}  // namespace ridgeline::engine::benchmark
