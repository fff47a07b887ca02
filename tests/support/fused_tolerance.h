// How far a right answer of a fused operation may be from the reference, derived from the number formats and the inputs,
// element by element.
//
// Legend: u = 2^-24, the unit roundoff of float32; u_t that of the tensor's type; N elements of a row. A sum's terms meet in at
// most kSumDepth additions one after the other, whatever N is: kernels add in blocks and trees. So a mean is off by at most e_m
// = kSumDepth·u·mean|x|, and of a norm y = d·f·w + b with d = x - m, v = mean d^2, f = 1 / sqrt(v + epsilon)
//
//   e_v <= (kSumDepth + 4)·u·v + e_m^2 + 4·u·e_m·sqrt(v)          e_f / f <= 1 / sqrt(1 - e_v / (v + epsilon)) - 1 + 4u
//   e_y <= |w|·f·(e_m + 2u·|d| + |d|·e_f/f) + 3u·(|w·d·f| + |b|)
//
// The exponent E of an exponential costs E·u of its value, so gelu(x), silu(x) and softmax have relative errors of a multiple
// of (1 + E)·u; gelu's derivative is below 1.13, which carries over what its argument is off by. Results below float32's least
// normal number may be 0. To all this comes one rounding of the result, u_t·|y|.
//
// In the unfused mode every intermediate value is rounded to the tensor's type as well: each rounding of a value z that the
// result depends on by a factor g adds u_t·|z·g|.
#pragma once

#include <vector>

#include "kernels/fused/fused.h"
#include "tests/reference/fused_reference.h"

namespace ridgeline::support {

// Of the same layout as the reference's result. 0 where the exact value is not finite.
struct FusedBound {
  std::vector<double> output;
  std::vector<double> residual_output;
  std::vector<double> keys;
};

FusedBound BoundErrors(const kernels::fused::FusedParams& params, kernels::fused::Mode mode,
                       const reference::FusedResult& want);

}  // namespace ridgeline::support
