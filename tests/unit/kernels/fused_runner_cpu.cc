#include "gtest/gtest.h"
#include "kernels/fused/cost.h"
#include "kernels/fused/fused_cpu.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/thread_executor.h"
#include "tests/unit/kernels/fused_runner.h"

namespace ridgeline::kernels::fused {
namespace {

constexpr int kNumSlots = 2;

}  // namespace

::testing::AssertionResult RunFused(const FusedParams& params, Mode mode, Placement /*placement*/) {
  const support::GuardedBuffer workspace(WorkspaceBytes(params.shape, mode));
  FusedParams with_workspace = params;
  with_workspace.workspace = workspace.data();
  support::ThreadExecutor executor(kNumSlots);
  RunFusedOnCpu(with_workspace, mode, executor);
  if (workspace.guards_whole()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "wrote past its workspace of " << workspace.size_bytes() << " bytes";
}

}  // namespace ridgeline::kernels::fused
