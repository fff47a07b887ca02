// The second form of gemm_ladder.
#pragma once

#include "server/engine/benchmark/table.h"

namespace ridgeline::engine::benchmark {

Benchmark GemmLadderOnCuda();

}  // namespace ridgeline::engine::benchmark
