// What fused operations should have computed: the formulas of kernels/fused/fused.h as plain loops in double, over inputs
// already rounded to the tested type. Never optimised. It shares no code with the kernels but the structs and the scalar
// conversions.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/fused/fused.h"

namespace ridgeline::reference {

// Tensors that the operation does not have are empty.
struct FusedResult {
  std::vector<double> output;           // [R, N]
  std::vector<double> residual_output;  // [R, N]
  std::vector<std::uint8_t> mask;       // [R, N]; made whether or not it is asked for
  std::vector<double> keys;             // [R, key_elems], turned
};

// Outputs and workspace are not touched.
FusedResult Fuse(const kernels::fused::FusedParams& params);

// gelu(x) in the form asked for.
double Gelu(kernels::fused::GeluForm form, double x);

// The position by which row `row` is turned.
std::int64_t PositionOfRow(const kernels::fused::FusedParams& params, std::int64_t row);

// Whether dropout keeps element `position`: Philox4x32-10, written out once more.
bool IsKept(const kernels::fused::DropoutOptions& options, std::int64_t position);

}  // namespace ridgeline::reference
