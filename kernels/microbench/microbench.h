// Plain work for measuring peaks and filling tensors: copies, matrix products, random elements.
#pragma once

#include <cstdint>

#include "kernels/common/data_type.h"
#include "kernels/common/executor.h"

namespace ridgeline::kernels::microbench {

// Copies `bytes` bytes with every core, as fast as memory allows. No overlap.
void CopyOnCpu(void* destination, const void* source, std::int64_t bytes, Executor& executor);

// C[m,n] = A[m,k] · B[n,k]ᵀ, row-major, all cores, float32 accumulation and result; A and B of `type` (float32, float16,
// bfloat16). The best product that this CPU device has: its rate is the device's compute roof for that type.
void GemmOnCpu(DataType type, std::int64_t m, std::int64_t n, std::int64_t k, const void* a, const void* b, float* c,
               void* workspace, Executor& executor);

// Bytes that GemmOnCpu needs in `workspace`, aligned to 64.
std::int64_t GemmWorkspaceBytesOnCpu(DataType type, std::int64_t m, std::int64_t n, std::int64_t k, int num_slots);

// Fills `elements` elements with mean + standard_deviation * normal(seed, element index), rounded once to `type` (float32,
// float16, bfloat16). Normals: Box-Muller over Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC'11), counter = element index / 4, key = seed: each element depends on seed and index alone, so every device and tiling
// agrees to the rounding of its logarithm and cosine.
void FillNormalOnCpu(DataType type, std::int64_t elements, std::uint64_t seed, float mean, float standard_deviation,
                     void* destination, Executor& executor);

}  // namespace ridgeline::kernels::microbench
