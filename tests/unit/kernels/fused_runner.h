// Runs fused operations on test cases, on the device of whichever fused_runner_*.cc the program links: the same tests judge
// every device.
#pragma once

#include <cstdint>

#include "gtest/gtest.h"
#include "kernels/fused/fused.h"
#include "tests/support/fused_case.h"

namespace ridgeline::kernels::fused {

// Where the device's copies of tensors begin, relative to a multiple of 16 bytes: all there, all one element behind, or each
// somewhere else. Tensors on the CPU always begin one element behind.
enum class Placement { kWords, kAlike, kAnywhere };

// Runs `params`, whose tensors lie in host memory, in a workspace of exactly WorkspaceBytes, full of NaN. Fails if the launch
// does, or if it wrote to an input or past the end of anything.
::testing::AssertionResult RunFused(const FusedParams& params, Mode mode, Placement placement = Placement::kWords);

// Runs the case and judges everything that it can judge: answer, guards, inputs. Outputs are NaN before.
::testing::AssertionResult IsRight(support::FusedCase& fused_case, Mode mode, Placement placement = Placement::kWords);

}  // namespace ridgeline::kernels::fused
