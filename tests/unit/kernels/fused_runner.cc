#include "tests/unit/kernels/fused_runner.h"

#include <string>

#include "gtest/gtest.h"
#include "kernels/fused/op_info.h"

namespace ridgeline::kernels::fused {

::testing::AssertionResult IsRight(support::FusedCase& fused_case, Mode mode, Placement placement) {
  if (const std::string reason = WhyNot(fused_case.shape()); !reason.empty()) return ::testing::AssertionFailure() << reason;
  fused_case.params();
  fused_case.Poison();
  ::testing::AssertionResult result = RunFused(fused_case.params(), mode, placement);
  return result ? fused_case.IsRight(mode) : result;
}

}  // namespace ridgeline::kernels::fused
