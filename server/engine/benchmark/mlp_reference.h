// The gradients of mlp_stack.h's stack as plain loops in double, for sizes that a person could do by hand.
#pragma once

#include <vector>

#include "server/engine/benchmark/mlp_stack.h"

namespace ridgeline::engine::benchmark {

struct MlpBlockValues {
  std::vector<double> norm_weight, norm_bias, up, down;
};

struct MlpValues {
  std::vector<double> input, output_gradient;  // [tokens, width]
  std::vector<MlpBlockValues> blocks;
};

struct MlpGradients {
  std::vector<double> input;
  std::vector<MlpBlockValues> blocks;
};

// The sum of y * output_gradient.
double MlpLoss(const MlpStackShape& shape, const MlpValues& values);
MlpGradients MlpLossGradients(const MlpStackShape& shape, const MlpValues& values);

}  // namespace ridgeline::engine::benchmark
