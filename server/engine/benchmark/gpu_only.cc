// Effects that a CPU does not have, and whose kernels for GPUs are not written: rows that say so.
#include <string>

#include "server/engine/benchmark/benchmarks.h"

namespace ridgeline::engine::benchmark {
namespace {

constexpr char kNoKernels[] = "its CUDA kernels are not written yet";

std::string OnCuda(const device::DeviceInfo& device, const char* why_not_on_cpu) {
  return device.type == device::DeviceType::kCpu ? why_not_on_cpu : kNoKernels;
}

}  // namespace

Benchmark Divergence() {
  return {.name = "divergence",
          .claim = "Threads of a warp that take different paths wait for each other: n paths cost n times the time of one.",
          .unsupported_reason = [](const device::DeviceInfo& device) {
            return OnCuda(device, "a CPU's threads have program counters of their own, so none waits for another's path");
          }};
}

Benchmark Occupancy() {
  return {.name = "occupancy",
          .claim =
              "A GPU hides latency by running other warps: bandwidth grows with resident warps until memory is busy, and "
              "blocks that do not fill the last wave leave multiprocessors idle.",
          .unsupported_reason = [](const device::DeviceInfo& device) {
            return OnCuda(device,
                          "a CPU core runs one or two threads and hides latency by reordering instructions, so there are "
                          "no resident warps to vary");
          }};
}

Benchmark Transfer() {
  return {.name = "transfer",
          .claim =
              "The way between host and device is far narrower than the device's memory, and needs pinned host memory to "
              "reach its width and to overlap with computing.",
          .unsupported_reason = [](const device::DeviceInfo& device) {
            return OnCuda(device, "the CPU device's memory is the host's: nothing is transferred");
          }};
}

}  // namespace ridgeline::engine::benchmark
