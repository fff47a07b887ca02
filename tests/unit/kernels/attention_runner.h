// Runs attention kernels on test cases, on the device of whichever attention_runner_*.cc the program links: the same tests
// judge every device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "tests/support/attention_case.h"

namespace ridgeline::kernels::attention {

inline constexpr Algorithm kAlgorithms[] = {Algorithm::kStandard, Algorithm::kFlash};

// The device's plan for a problem.
AttentionPlan Plan(Algorithm algorithm, const AttentionParams& params);

// Why the device's kernel of that algorithm cannot compute the problem, or empty if it can: its plan asks for more workspace
// than there is.
std::string WhyNot(Algorithm algorithm, const AttentionParams& params);

// Runs exactly what `plan` says on tensors in host memory, in a workspace of exactly its size, full of NaN. Fails if the kernel
// does, or if it wrote to an input or past the end of anything.
::testing::AssertionResult RunKernel(const AttentionPlan& plan, const AttentionParams& params);
::testing::AssertionResult RunKernel(Algorithm algorithm, const AttentionParams& params);

// The same for tensors that lie in memory of the device, which only the workspace's guards watch; `sequences` is host memory.
::testing::AssertionResult RunKernelInPlace(Algorithm algorithm, const AttentionParams& params);

// Memory of the device, for arrays too large for the host. Untouched parts hold anything.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::int64_t size_bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  bool allocated() const { return memory_ != nullptr; }  // false: the device has not as much
  void* data() const { return memory_; }

  void Write(std::int64_t offset_bytes, std::span<const std::byte> bytes);
  std::vector<std::byte> Read(std::int64_t offset_bytes, std::int64_t size_bytes) const;

 private:
  const std::int64_t size_bytes_;
  void* memory_ = nullptr;
};

// Runs the case and judges everything that it can judge: answer, guards, inputs.
::testing::AssertionResult IsRight(Algorithm algorithm, support::AttentionCase& attention_case);

// The case's output and log_sum_exp after a run, widened; output first.
std::vector<double> AnswerOf(support::AttentionCase& attention_case);

// What two right answers of the case may differ by, in the order of AnswerOf.
std::vector<double> DifferenceBound(support::AttentionCase& attention_case);

}  // namespace ridgeline::kernels::attention
