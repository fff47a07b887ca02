// What a row of a fused operation should be, by the formulas of kernels/fused/fused.h as plain loops in double: with it results
// are checked before they are timed.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/fused/fused.h"

namespace ridgeline::engine::benchmark {

// A row's inputs as the device has them, widened. Those that the operation lacks may be null. Of an operation that adds a
// residual and gives the sum out, `input` is that sum, and `other` null.
struct FusedRowInputs {
  const float* input;   // [N]
  const float* other;   // [N]
  const float* weight;  // [N]
  const float* bias;    // [N]
  std::int64_t row_idx;
};

struct FusedElement {
  double value;
  double magnitude;  // of the terms that it is made of, of which each rounding errs by a share
};

// Row r has position r.
std::vector<FusedElement> FusedRow(const kernels::fused::FusedShape& shape, const FusedRowInputs& inputs);

// How far a right answer may be off.
double FusedTolerance(const kernels::fused::FusedShape& shape, kernels::fused::Mode mode, const FusedElement& want);

}  // namespace ridgeline::engine::benchmark
