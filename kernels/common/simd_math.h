// exp and tanh over arrays, on the best SIMD target of this processor: the functions that kernels inline, within a test's
// reach.
#pragma once

#include <cstdint>

namespace ridgeline::kernels {

// to[i] = exp(from[i]), within 2 ulp.
void ExpArray(const float* from, float* to, std::int64_t count);

// to[i] = tanh(from[i]), within 2 ulp.
void TanhArray(const float* from, float* to, std::int64_t count);

}  // namespace ridgeline::kernels
