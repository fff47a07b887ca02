#include "tests/unit/kernels/attention_runner_cpu.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/flash/flash.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/standard/standard.h"
#include "kernels/common/executor.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/thread_executor.h"
#include "tests/unit/kernels/attention_runner.h"

namespace ridgeline::kernels::attention {
namespace {

constexpr int kNumSlots = 2;

}  // namespace

AttentionPlan PlanForSlots(Algorithm algorithm, const AttentionParams& params, int num_slots) {
  return PlanOnCpu(params.shape, params.sequences, algorithm, CpuLimits{.num_slots = num_slots});
}

::testing::AssertionResult RunKernelOn(Executor& executor, const AttentionPlan& plan, AttentionParams params) {
  const support::GuardedBuffer workspace(plan.workspace_bytes);
  params.workspace = plan.workspace_bytes > 0 ? workspace.data() : nullptr;
  if (plan.algorithm == Algorithm::kStandard) {
    RunStandardOnCpu(plan, params, executor);
  } else {
    RunFlashOnCpu(plan, params, executor);
  }
  if (workspace.guards_whole()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << plan.kernel << ": wrote past its workspace of " << plan.workspace_bytes << " bytes";
}

AttentionPlan Plan(Algorithm algorithm, const AttentionParams& params) { return PlanForSlots(algorithm, params, kNumSlots); }

::testing::AssertionResult RunKernel(const AttentionPlan& plan, const AttentionParams& params) {
  support::ThreadExecutor executor(kNumSlots);
  return RunKernelOn(executor, plan, params);
}

::testing::AssertionResult RunKernelInPlace(Algorithm algorithm, const AttentionParams& params) {
  return RunKernel(Plan(algorithm, params), params);
}

// Address space without memory behind it, but for the pages that are touched.
DeviceMemory::DeviceMemory(std::int64_t size_bytes) : size_bytes_(size_bytes) {
  void* const memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory != MAP_FAILED) memory_ = memory;
}

DeviceMemory::~DeviceMemory() {
  if (allocated()) munmap(memory_, size_bytes_);
}

void DeviceMemory::Write(std::int64_t offset_bytes, std::span<const std::byte> bytes) {
  std::ranges::copy(bytes, static_cast<std::byte*>(memory_) + offset_bytes);
}

std::vector<std::byte> DeviceMemory::Read(std::int64_t offset_bytes, std::int64_t size_bytes) const {
  const auto* const begin = static_cast<const std::byte*>(memory_) + offset_bytes;
  return {begin, begin + size_bytes};
}

}  // namespace ridgeline::kernels::attention
