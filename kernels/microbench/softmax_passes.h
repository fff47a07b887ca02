// Softmax of rows in three ways, which read the row three times, twice and once.
#pragma once

#include <cstdint>

#include "kernels/common/executor.h"

namespace ridgeline::kernels::microbench {

enum class SoftmaxPasses : std::uint8_t {
  kThree,  // maximum; sum of exp(x - maximum); output
  kTwo,    // maximum and sum together, rescaling the sum whenever the maximum grows (online); output
  kOne     // the row is held in fast memory (scratch) after its one read
};

// output[r, c] = exp(input[r, c] - max_r) / sum_r. Rows are tasks.
struct SoftmaxPassesParams {
  SoftmaxPasses passes;
  const float* input;  // [rows, columns]
  float* output;       // [rows, columns]
  std::int64_t rows;
  std::int64_t columns;  // a multiple of kSoftmaxGranule
  float* scratch;        // [num_slots, columns]; kOne on the CPU only, else null
};

inline constexpr std::int64_t kSoftmaxGranule = 64;

void RunOnCpu(const SoftmaxPassesParams& params, Executor& executor);

}  // namespace ridgeline::kernels::microbench
