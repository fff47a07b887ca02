#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/microbench/memory_hierarchy.h"
#include "server/base/status_macros.h"
#include "server/base/units.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/levels.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::microbench::ChaseParams;
using kernels::microbench::kNodeElements;
using kernels::microbench::StreamOperation;
using kernels::microbench::StreamParams;

constexpr std::int64_t kKi = 1024, kMi = 1024 * kKi;
constexpr float kScale = 0.75f;

// Moved by one run at least, so that handing it to the threads is small beside it.
constexpr std::int64_t kMinRunBytes = 32 * kMi;

// A chain is built on the host, and sent.
constexpr std::int64_t kMostChainBytes = 1024 * kMi;
constexpr std::int64_t kMinSteps = 1 << 14, kMaxSteps = 1 << 18;

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

absl::StatusOr<Subject> MakeStream(const PointContext& context) {
  const OperationTraits traits = TraitsOf(context.values.Word("operation"));
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
                            .passes = std::max<std::int64_t>(1, kMinRunBytes / pass_bytes),
                            .slice_sums = static_cast<float*>(arrays->slice_sums.data())};
  return Subject{
      .kernel = absl::StrCat("stream_cpu[", context.values.Word("operation"), ",passes=", params.passes, "]"),
      .flops = traits.flops * elements * params.passes,
      .bytes = pass_bytes * params.passes,
      .queue = [params, arrays](device::Lane& lane) { return lane.Run(params); },
      .check = [&lane = context.lane, params, arrays, num_slices] { return CheckStream(lane, *arrays, params, num_slices); }};
}

// One cycle through all nodes in random order (Sattolo's shuffle), so that no prefetcher guesses the next.
std::vector<std::int64_t> RandomCycle(std::int64_t num_nodes, std::uint64_t seed) {
  std::vector<std::int64_t> next(num_nodes);
  std::iota(next.begin(), next.end(), 0);
  std::mt19937_64 random(seed);
  for (std::int64_t i = num_nodes - 1; i > 0; --i) {
    std::swap(next[i], next[static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(i))]);
  }
  return next;
}

struct Chain {
  std::vector<std::int64_t> next;   // [num_nodes]
  std::vector<std::int64_t> lines;  // [num_nodes, kNodeElements], as the device has it
  Buffer nodes, cursor;
};

absl::Status CheckChain(device::Lane& lane, const Chain& chain, std::int64_t steps) {
  RIDGELINE_ASSIGN_OR_RETURN(const auto host, measure::ReadBack(lane, chain.cursor, sizeof(std::int64_t)));
  std::int64_t got = 0, want = 0;
  std::memcpy(&got, host->data(), sizeof(got));
  for (std::int64_t step = 0; step < steps; ++step) want = chain.next[want];
  return ExpectNear("the last node", static_cast<double>(got), static_cast<double>(want), 0);
}

absl::StatusOr<Subject> MakeChase(const PointContext& context) {
  const std::int64_t bytes = context.values.Integer("working_set_bytes");
  if (bytes > kMostChainBytes) {
    return absl::InvalidArgumentError(absl::StrCat("chains are built up to ", base::FormatBytes(kMostChainBytes)));
  }
  const std::int64_t num_nodes = bytes / (kNodeElements * static_cast<std::int64_t>(sizeof(std::int64_t)));
  auto chain = std::make_shared<Chain>();
  RIDGELINE_ASSIGN_OR_RETURN(chain->nodes, context.lane.Allocate(bytes));  // refused before the host has done its part
  chain->nodes = Buffer();
  chain->next = RandomCycle(num_nodes, context.seed);
  chain->lines.resize(num_nodes * kNodeElements);
  for (std::int64_t i = 0; i < num_nodes; ++i) chain->lines[i * kNodeElements] = chain->next[i];
  const device::HostSlice lines{chain->lines.data(), bytes};
  RIDGELINE_ASSIGN_OR_RETURN(chain->nodes, context.lane.Upload({&lines, 1}, chain));
  static constexpr std::int64_t kFirst = 0;
  const device::HostSlice first{&kFirst, sizeof(kFirst)};
  RIDGELINE_ASSIGN_OR_RETURN(chain->cursor, context.lane.Upload({&first, 1}, nullptr));
  const ChaseParams params{.nodes = static_cast<const std::int64_t*>(chain->nodes.data()),
                           .cursor = static_cast<std::int64_t*>(chain->cursor.data()),
                           .steps = std::clamp(num_nodes, kMinSteps, kMaxSteps)};
  return Subject{.kernel = absl::StrCat("chase_cpu[steps=", params.steps, "]"),
                 .bytes = params.steps * 64,
                 .queue = [params, chain](device::Lane& lane) { return lane.Run(params); },
                 .check = [&lane = context.lane, params, chain] { return CheckChain(lane, *chain, params.steps); },
                 .figures =
                     [steps = params.steps](double seconds) {
                       return std::map<std::string, double>{{"latency_seconds", seconds / static_cast<double>(steps)}};
                     }};
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  return context.values.Word("operation") == "chase" ? MakeChase(context) : MakeStream(context);
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  std::vector<LatencySample> samples;
  for (const Point& point : points) {
    if (point.values.Word("operation") == "chase") {
      samples.push_back({point.values.Integer("working_set_bytes"), point.figures.at("latency_seconds")});
    }
  }
  std::sort(samples.begin(), samples.end(),
            [](const auto& a, const auto& b) { return a.working_set_bytes < b.working_set_bytes; });
  const std::vector<Level> levels = FindLevels(samples);
  if (levels.size() < 2) return NotEnoughPoints("the chase over working sets that reach from the first cache to memory");
  Judgement judgement{.verdict = VerdictOf(levels.back().seconds > 5 * levels.front().seconds),
                      .explanation = absl::StrCat("dependent loads see ", levels.size(), " levels: ")};
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const std::string what = absl::StrCat("level_", i + 1);
    const auto largest = static_cast<double>(levels[i].largest_bytes);
    absl::StrAppend(&judgement.explanation, i == 0 ? "" : ", ", TimeText(levels[i].seconds), " a load up to ",
                    SizeText(largest));
    judgement.findings.push_back({absl::StrCat(what, "_bytes"), largest, "the largest working set that sees its latency"});
    judgement.findings.push_back({absl::StrCat(what, "_latency_seconds"), levels[i].seconds, "of one dependent load"});
  }
  return judgement;
}

}  // namespace

Benchmark MemoryHierarchy() {
  return {.name = "memory_hierarchy",
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
          .unsupported_reason = &NeedsCpuDevice,
          .make_subject = &Make,
          .judge = &Judge};
}

}  // namespace ridgeline::engine::benchmark
