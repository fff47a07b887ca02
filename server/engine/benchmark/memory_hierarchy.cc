#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/microbench/memory_hierarchy.h"
#include "server/base/status_macros.h"
#include "server/base/units.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/pieces.h"
#include "server/engine/benchmark/pointer_chase.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::microbench::ReadPath;
using kernels::microbench::RegisterParams;
using kernels::microbench::StreamOperation;
using kernels::microbench::StreamParams;

constexpr std::int64_t kKi = 1024, kMi = 1024 * kKi;
constexpr float kScale = 0.75f;

constexpr char kName[] = "memory_hierarchy";

// Moved by one run at least, so that handing it over is small beside it.
constexpr std::int64_t kMinCpuRunBytes = 32 * kMi;
constexpr std::int64_t kMinCudaRunBytes = 1024 * kMi;
constexpr std::int64_t kMinSharedRunBytes = 4096 * kMi;
constexpr std::int64_t kMinRegisterRunBytes = 64 * 1024 * kMi;

constexpr std::int64_t kCpuLineBytes = 64, kCudaLineBytes = 128;
constexpr std::int64_t kSettledPasses = 1000;

struct Arrays {
  Buffer a, b, destination, slice_sums;
};

struct OperationTraits {
  StreamOperation operation;
  int reads, writes;  // arrays
  int flops;          // an element
};

OperationTraits TraitsOf(const std::string& name) {
  if (name == "read") return {StreamOperation::kRead, 1, 0, 1};
  if (name == "write") return {StreamOperation::kWrite, 0, 1, 0};
  if (name == "copy") return {StreamOperation::kCopy, 1, 1, 0};
  return {StreamOperation::kTriad, 2, 1, 2};
}

// Sums of float32 err by an epsilon for each level of the sums in lanes; a linear bound is generous and still finds a wrong
// slice.
absl::Status CheckRead(device::Lane& lane, const Arrays& arrays, const StreamParams& params, int num_slices) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> a, ReadFloats(lane, arrays.a, params.elements));
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> sums, ReadFloats(lane, arrays.slice_sums, num_slices));
  const double want = std::accumulate(a.begin(), a.end(), 0.0);
  const double got = std::accumulate(sums.begin(), sums.end(), 0.0);
  return ExpectNear("the sum", got, want, 1e-3 * std::sqrt(static_cast<double>(params.elements)) + 1e-3);
}

absl::Status CheckStream(device::Lane& lane, const Arrays& arrays, const StreamParams& params, int num_slices) {
  if (params.operation == StreamOperation::kRead) return CheckRead(lane, arrays, params, num_slices);
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> to, ReadFloats(lane, arrays.destination, params.elements));
  std::vector<float> a, b;
  if (params.a != nullptr) {
    RIDGELINE_ASSIGN_OR_RETURN(a, ReadFloats(lane, arrays.a, params.elements));
  }
  if (params.b != nullptr) {
    RIDGELINE_ASSIGN_OR_RETURN(b, ReadFloats(lane, arrays.b, params.elements));
  }
  for (std::int64_t i = 0; i < params.elements; ++i) {
    double want = kScale;
    if (params.operation == StreamOperation::kCopy) want = a[i];
    if (params.operation == StreamOperation::kTriad) want = a[i] + static_cast<double>(kScale) * b[i];
    const double tolerance = 1e-6 * (1 + std::abs(want));
    if (!(std::abs(to[i] - want) <= tolerance)) return ExpectNear(absl::StrCat("element ", i), to[i], want, tolerance);
  }
  return absl::OkStatus();
}

struct StreamChoice {
  OperationTraits traits;
  ReadPath path;
  std::int64_t min_run_bytes;
};

absl::StatusOr<Subject> MakeStream(const PointContext& context, const StreamChoice& choice) {
  const OperationTraits& traits = choice.traits;
  const std::int64_t elements = context.values.Integer("working_set_bytes") / 4 / (traits.reads + traits.writes);
  const int num_slices = context.device.info().compute_units;
  auto arrays = std::make_shared<Arrays>();
  if (traits.reads >= 1) {
    RIDGELINE_ASSIGN_OR_RETURN(arrays->a, RandomFloats(context, elements));
  }
  if (traits.reads >= 2) {
    RIDGELINE_ASSIGN_OR_RETURN(arrays->b, RandomFloats(context, elements, /*stream=*/1));
  }
  if (traits.writes >= 1) {
    RIDGELINE_ASSIGN_OR_RETURN(arrays->destination, EmptyFloats(context, elements));
  }
  RIDGELINE_ASSIGN_OR_RETURN(arrays->slice_sums, EmptyFloats(context, num_slices));
  const std::int64_t pass_bytes = elements * 4 * (traits.reads + traits.writes);
  const StreamParams params{.operation = traits.operation,
                            .a = static_cast<const float*>(arrays->a.data()),
                            .b = static_cast<const float*>(arrays->b.data()),
                            .destination = static_cast<float*>(arrays->destination.data()),
                            .scale = kScale,
                            .elements = elements,
                            .passes = std::max<std::int64_t>(1, choice.min_run_bytes / pass_bytes),
                            .slice_sums = static_cast<float*>(arrays->slice_sums.data()),
                            .path = choice.path};
  return Subject{
      .kernel =
          absl::StrCat(KernelName(context, "stream"), "[", context.values.Word("operation"), ",passes=", params.passes, "]"),
      .flops = traits.flops * elements * params.passes,
      .bytes = pass_bytes * params.passes,
      .queue = [params, arrays](device::Lane& lane) { return lane.Run(params); },
      .check = [&lane = context.lane, params, arrays, num_slices] { return CheckStream(lane, *arrays, params, num_slices); }};
}

absl::StatusOr<Subject> MakeOnCpu(const PointContext& context) {
  const std::string& operation = context.values.Word("operation");
  if (operation == "chase") return MakeChase(context, context.values.Integer("working_set_bytes"), kCpuLineBytes);
  return MakeStream(context, {TraitsOf(operation), ReadPath::kCaches, kMinCpuRunBytes});
}

double RegistersAtEnd(const RegisterParams& params) {
  std::vector<float> x(params.registers);
  std::iota(x.begin(), x.end(), 0.0f);
  // The numbers have reached their fixed point long before so many passes.
  for (std::int64_t pass = 0; pass < std::min(params.passes, kSettledPasses); ++pass) {
    for (int i = 0; i < params.registers; ++i) {
      x[i] =
          std::fma(kernels::microbench::kRegisterFactor, x[(i + 1) % params.registers], kernels::microbench::kRegisterAddend);
    }
  }
  return std::accumulate(x.begin(), x.end(), 0.0);
}

absl::Status CheckRegisters(device::Lane& lane, const Buffer& thread_sums, const RegisterParams& params, std::int64_t threads) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> sums, ReadFloats(lane, thread_sums, threads));
  const double want = RegistersAtEnd(params);
  for (const float got : sums) RIDGELINE_RETURN_IF_ERROR(ExpectNear("a thread's sum", got, want, 1e-5 * want));
  return absl::OkStatus();
}

// As many registers of each thread as the working set fills, a power of two.
absl::StatusOr<Subject> MakeRegisters(const PointContext& context) {
  const std::int64_t threads = std::int64_t{context.device.info().compute_units} * kernels::microbench::kRegisterThreads;
  const std::int64_t wanted = context.values.Integer("working_set_bytes") / 4 / threads;
  RegisterParams params{.registers = kernels::microbench::kRegisterCounts[0], .passes = 0, .thread_sums = nullptr};
  for (const int count : kernels::microbench::kRegisterCounts) {
    if (count <= wanted) params.registers = count;
  }
  const std::int64_t pass_bytes = threads * params.registers * kernels::microbench::kRegisterBytes;
  params.passes = kMinRegisterRunBytes / pass_bytes;
  RIDGELINE_ASSIGN_OR_RETURN(Buffer allocated, EmptyFloats(context, threads));
  const auto sums = std::make_shared<Buffer>(std::move(allocated));
  params.thread_sums = static_cast<float*>(sums->data());
  return Subject{
      .kernel = absl::StrCat("registers_cuda[of_a_thread=", params.registers, ",passes=", params.passes, "]"),
      .flops = 2 * threads * params.registers * params.passes,
      .bytes = pass_bytes * params.passes,
      .queue = [params, sums](device::Lane& lane) { return lane.Run(params); },
      .check = [&lane = context.lane, params, sums, threads] { return CheckRegisters(lane, *sums, params, threads); }};
}

absl::Status CheckFitsSharedMemory(const PointContext& context) {
  // A block may have all but what the system takes for itself.
  constexpr std::int64_t kReservedBytes = 2 * kKi;
  const device::DeviceInfo& device = context.device.info();
  const std::int64_t most_bytes = (device.l1_cache_bytes - kReservedBytes) * device.compute_units;
  if (context.values.Integer("working_set_bytes") <= most_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the shared memory of ", device.compute_units, " multiprocessors holds ", base::FormatBytes(most_bytes)));
}

absl::StatusOr<Subject> MakeOnCuda(const PointContext& context) {
  const std::string& operation = context.values.Word("operation");
  if (operation == "chase") return MakeChase(context, context.values.Integer("working_set_bytes"), kCudaLineBytes);
  if (operation == "registers") return MakeRegisters(context);
  if (operation == "shared") {
    RIDGELINE_RETURN_IF_ERROR(CheckFitsSharedMemory(context));
    return MakeStream(context, {TraitsOf("read"), ReadPath::kSharedMemory, kMinSharedRunBytes});
  }
  if (operation == "read_past_l1") return MakeStream(context, {TraitsOf("read"), ReadPath::kPastL1, kMinCudaRunBytes});
  return MakeStream(context, {TraitsOf(operation), ReadPath::kCaches, kMinCudaRunBytes});
}

// What all multiprocessors work on together is no smaller than this, or most threads would have nothing; and no larger, in
// what lies on them.
bool MakesSenseOnCuda(const AxisValues& values) {
  const std::string& operation = values.Word("operation");
  const std::int64_t bytes = values.Integer("working_set_bytes");
  if (operation == "chase") return true;
  const bool on_chip = operation == "registers" || operation == "shared";
  return bytes >= kMi && (!on_chip || bytes <= 32 * kMi);
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) { return JudgeChase(points); }

// The latency's levels, and the best rate of each way to read.
Judgement JudgeOnCuda(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  Judgement judgement = JudgeChase(points);
  std::map<std::string, double> best;
  for (const Point& point : points) {
    double& rate = best[point.values.Word("operation")];
    rate = std::max(rate, point.report.bytes_per_second);
  }
  for (const auto& [operation, rate] : best) {
    if (operation == "chase") continue;
    judgement.findings.push_back({absl::StrCat("most_", operation, "_bytes_per_second"), rate, "at the best working set"});
  }
  return judgement;
}

Benchmark OnCpu() {
  return {.name = kName,
          .claim =
              "Memory is a hierarchy: each level is several times larger, slower and farther away than the one before. "
              "Streams share their working set among all cores; a chase is one thread's dependent loads, so its working "
              "sets show one core's caches.",
          .axes = {WordAxis("operation", "what is done with the working set", {"read", "write", "copy", "triad", "chase"}),
                   IntegerAxis("working_set_bytes", "bytes of all arrays together", kKi, 64 * 1024 * kMi,
                               {8 * kKi, 16 * kKi, 32 * kKi, 64 * kKi, 128 * kKi, 256 * kKi, 512 * kKi, kMi, 2 * kMi, 4 * kMi,
                                8 * kMi, 16 * kMi, 32 * kMi, 64 * kMi, 128 * kMi},
                               kKi)},
          .plot = {.x_axis = "working_set_bytes", .y = "bytes_per_second"},
          .unsupported_reason = &AnyDeviceWillDo,
          .make_subject = &MakeOnCpu,
          .judge = &Judge};
}

Benchmark OnCuda() {
  return {.name = kName,
          .claim =
              "Memory is a hierarchy: registers, shared memory and the L1 cache of a multiprocessor, the L2 cache of all, "
              "and device memory, each larger, slower and farther away than the one before. Streams share their working "
              "set among all multiprocessors, from 1 MiB on; `registers` counts three operands of a multiply-add, and "
              "like `shared` has no more than 32 MiB. A chase is one thread's dependent loads.",
          .axes = {WordAxis("operation", "what is done with the working set, and where it lies",
                            {"registers", "shared", "read", "read_past_l1", "write", "copy", "triad", "chase"}),
                   IntegerAxis("working_set_bytes", "bytes of all arrays together", kKi, 64 * 1024 * kMi,
                               {16 * kKi, 64 * kKi, 128 * kKi, 192 * kKi, 256 * kKi, 512 * kKi, kMi, 2 * kMi, 4 * kMi, 8 * kMi,
                                16 * kMi, 24 * kMi, 32 * kMi, 48 * kMi, 64 * kMi, 128 * kMi, 256 * kMi, 512 * kMi},
                               kKi)},
          .plot = {.x_axis = "working_set_bytes", .y = "bytes_per_second"},
          .unsupported_reason = &AnyDeviceWillDo,
          .makes_sense = &MakesSenseOnCuda,
          .make_subject = &MakeOnCuda,
          .judge = &JudgeOnCuda};
}

}  // namespace

Benchmark MemoryHierarchy(device::DeviceType type) { return type == device::DeviceType::kCpu ? OnCpu() : OnCuda(); }

}  // namespace ridgeline::engine::benchmark
