// The backward pass of what stands between the matrix products of a LayerNorm-linear-GELU-linear block, in float32. Sums over
// rows are made of a fixed number of partial sums, in a fixed order: equal inputs give equal bytes, on one device.
#pragma once

#include <cstdint>

#include "kernels/common/executor.h"

namespace ridgeline::kernels::microbench {

// dx = dy * gelu'(x), of the exact gelu (GeluForm::kErf): gelu'(x) is the normal distribution function at x, plus x times its
// density.
struct GeluBackwardParams {
  const float* input;            // [elements]: x
  const float* output_gradient;  // [elements]: dy
  float* input_gradient;         // [elements]: dx; may be output_gradient
  std::int64_t elements;
};

// Of y = layer norm of x, times weight, plus bias; see kernels/fused/fused.h.
//
//   x^ = (x - mean) * f,  f = 1 / sqrt(variance + epsilon),  g = dy * weight
//   dx = f * (g - mean of g - x^ * mean of g * x^)        dweight = sum over rows of dy * x^        dbias = sum over rows of dy
struct LayerNormBackwardParams {
  const float* input;            // [rows, columns]: x
  const float* weight;           // [columns]
  const float* output_gradient;  // [rows, columns]: dy
  float* input_gradient;         // [rows, columns]: dx
  float* weight_gradient;        // [columns]
  float* bias_gradient;          // [columns]
  float* workspace;              // [2, kLayerNormPartials, columns]
  std::int64_t rows;
  std::int64_t columns;  // at most kMostLayerNormColumns
  float epsilon;
};

inline constexpr std::int64_t kLayerNormPartials = 256;
inline constexpr std::int64_t kMostLayerNormColumns = 16384;

void RunOnCpu(const GeluBackwardParams& params, Executor& executor);
void RunOnCpu(const LayerNormBackwardParams& params, Executor& executor);

}  // namespace ridgeline::kernels::microbench
