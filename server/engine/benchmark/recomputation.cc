#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/microbench/mlp_backward.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/mlp_reference.h"
#include "server/engine/benchmark/mlp_stack.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using device::Lane;

constexpr std::int64_t kHiddenOverWidth = 4;

KeepPolicy PolicyOf(const AxisValues& values) {
  const std::string& keep = values.Word("keep");
  if (keep == "every") return {.keep = Keep::kEvery, .every = values.Integer("every")};
  if (keep == "selective") return {.keep = Keep::kSelective};
  if (keep == "none") return {.keep = Keep::kNone};
  return {.keep = keep == "host" ? Keep::kHost : Keep::kAll};
}

// ---- The check --------------------------------------------------------------------------------------------------------------

absl::StatusOr<std::vector<double>> ReadValues(Lane& lane, const Buffer& buffer) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> floats, ReadFloats(lane, buffer, buffer.size_bytes() / 4));
  return std::vector<double>(floats.begin(), floats.end());
}

absl::StatusOr<std::vector<MlpBlockValues>> ReadBlocks(Lane& lane, const std::vector<MlpBlock>& blocks) {
  std::vector<MlpBlockValues> values;
  for (const MlpBlock& block : blocks) {
    MlpBlockValues& each = values.emplace_back();
    RIDGELINE_ASSIGN_OR_RETURN(each.norm_weight, ReadValues(lane, block.norm_weight));
    RIDGELINE_ASSIGN_OR_RETURN(each.norm_bias, ReadValues(lane, block.norm_bias));
    RIDGELINE_ASSIGN_OR_RETURN(each.up, ReadValues(lane, block.up));
    RIDGELINE_ASSIGN_OR_RETURN(each.down, ReadValues(lane, block.down));
  }
  return values;
}

// Gradients go through a few sums of some dozen terms: float32 leaves a few millionths of their size.
absl::Status ExpectSame(const char* what, const std::vector<double>& got, const std::vector<double>& want) {
  double largest = 0;
  for (const double value : want) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < want.size(); ++i) {
    RIDGELINE_RETURN_IF_ERROR(ExpectNear(absl::StrCat(what, "[", i, "]"), got[i], want[i], 1e-4 * largest));
  }
  return absl::OkStatus();
}

// The same policy on a stack so small that double precision can follow.
absl::Status CheckSmallStack(device::Device& device, Lane& lane, const KeepPolicy& policy, std::uint64_t seed) {
  const MlpStackShape shape{.tokens = 5, .width = 16, .hidden = 24, .blocks = 5};
  RIDGELINE_ASSIGN_OR_RETURN(const auto stack,
                             MlpStack::Create(device, lane, shape, seed, /*uses_host=*/policy.keep == Keep::kHost));
  const absl::Status queued = stack->Queue(lane, policy);
  RIDGELINE_RETURN_IF_ERROR(measure::AwaitLane(lane));
  RIDGELINE_RETURN_IF_ERROR(queued);
  MlpValues values;
  RIDGELINE_ASSIGN_OR_RETURN(values.input, ReadValues(lane, stack->input()));
  RIDGELINE_ASSIGN_OR_RETURN(values.output_gradient, ReadValues(lane, stack->output_gradient()));
  RIDGELINE_ASSIGN_OR_RETURN(values.blocks, ReadBlocks(lane, stack->parameters()));
  const MlpGradients want = MlpLossGradients(shape, values);
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<double> input, ReadValues(lane, stack->input_gradient()));
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<MlpBlockValues> blocks, ReadBlocks(lane, stack->gradients()));
  RIDGELINE_RETURN_IF_ERROR(ExpectSame("the input's gradient", input, want.input));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    RIDGELINE_RETURN_IF_ERROR(ExpectSame("a norm's weight gradient", blocks[i].norm_weight, want.blocks[i].norm_weight));
    RIDGELINE_RETURN_IF_ERROR(ExpectSame("a norm's bias gradient", blocks[i].norm_bias, want.blocks[i].norm_bias));
    RIDGELINE_RETURN_IF_ERROR(ExpectSame("a first product's gradient", blocks[i].up, want.blocks[i].up));
    RIDGELINE_RETURN_IF_ERROR(ExpectSame("a second product's gradient", blocks[i].down, want.blocks[i].down));
  }
  return absl::OkStatus();
}

using HostBuffers = std::vector<std::shared_ptr<const device::HostBuffer>>;

// Of the first block, one in the middle and the last.
absl::StatusOr<HostBuffers> ReadGradients(Lane& lane, const MlpStack& stack) {
  HostBuffers read;
  const auto& gradients = stack.gradients();
  std::vector<const Buffer*> buffers = {&stack.input_gradient()};
  for (const MlpBlock* const block : {&gradients.front(), &gradients[gradients.size() / 2], &gradients.back()}) {
    for (const Buffer* const buffer : {&block->norm_weight, &block->norm_bias, &block->up, &block->down}) {
      buffers.push_back(buffer);
    }
  }
  for (const Buffer* const buffer : buffers) {
    RIDGELINE_ASSIGN_OR_RETURN(read.emplace_back(), measure::ReadBack(lane, *buffer, buffer->size_bytes()));
  }
  return read;
}

// Recomputing gives the very bytes that keeping gave, wherever keeping all is possible.
absl::Status CheckAgainstKeepingAll(Lane& lane, MlpStack& stack) {
  RIDGELINE_ASSIGN_OR_RETURN(const HostBuffers got, ReadGradients(lane, stack));
  const absl::Status queued = stack.Queue(lane, {.keep = Keep::kAll});
  RIDGELINE_RETURN_IF_ERROR(measure::AwaitLane(lane));
  if (absl::IsResourceExhausted(queued)) return absl::OkStatus();
  RIDGELINE_RETURN_IF_ERROR(queued);
  RIDGELINE_ASSIGN_OR_RETURN(const HostBuffers want, ReadGradients(lane, stack));
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::memcmp(got[i]->data(), want[i]->data(), want[i]->size_bytes()) != 0) {
      return absl::InternalError("gradients differ from those of a pass that kept all activations");
    }
  }
  return absl::OkStatus();
}

// ---- The points -------------------------------------------------------------------------------------------------------------

// Queues a pass; the first time, notes what it allocated at most beside what was there before.
absl::Status QueuePass(device::Device& device, Lane& lane, MlpStack& stack, const KeepPolicy& policy,
                       std::int64_t& peak_bytes) {
  if (peak_bytes > 0) return stack.Queue(lane, policy);
  device.ResetPeakMemoryStats();
  const std::int64_t before = device.memory_stats().allocated_bytes;
  RIDGELINE_RETURN_IF_ERROR(stack.Queue(lane, policy));
  peak_bytes = device.memory_stats().peak_allocated_bytes - before;
  return absl::OkStatus();
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  const AxisValues& values = context.values;
  const std::int64_t width = values.Integer("width");
  const MlpStackShape shape{.tokens = values.Integer("tokens"),
                            .width = width,
                            .hidden = kHiddenOverWidth * width,
                            .blocks = values.Integer("blocks")};
  const KeepPolicy policy = PolicyOf(values);
  RIDGELINE_RETURN_IF_ERROR(CheckRunTime(context.device.info(), static_cast<double>(CountMlpFlops(shape, policy))));
  RIDGELINE_ASSIGN_OR_RETURN(const auto stack, MlpStack::Create(context.device, context.lane, shape, context.seed,
                                                                /*uses_host=*/policy.keep == Keep::kHost));
  const auto peak_bytes = std::make_shared<std::int64_t>(0);
  const double flops_ratio = static_cast<double>(CountMlpFlops(shape, policy)) / static_cast<double>(CountMlpFlops(shape, {}));
  return Subject{
      .kernel = absl::StrCat("forward_backward[", values.ToString(), "]"),
      .flops = CountMlpFlops(shape, policy),
      .bytes = CountMlpBytes(shape, policy),
      .queue = [&device = context.device, stack, policy,
                peak_bytes](Lane& lane) { return QueuePass(device, lane, *stack, policy, *peak_bytes); },
      .check = [&device = context.device, &lane = context.lane, stack, policy, seed = context.seed]() -> absl::Status {
        RIDGELINE_RETURN_IF_ERROR(CheckSmallStack(device, lane, policy, seed));
        return CheckAgainstKeepingAll(lane, *stack);
      },
      .figures =
          [peak_bytes, flops_ratio](double /*seconds*/) {
            return std::map<std::string, double>{{"activation_peak_bytes", static_cast<double>(*peak_bytes)},
                                                 {"flops_ratio", flops_ratio}};
          }};
}

bool MakesSense(const AxisValues& values) { return values.Word("keep") == "every" || values.Integer("every") == 1; }

std::string PolicyText(const AxisValues& values) {
  const std::string& keep = values.Word("keep");
  return keep == "every" ? absl::StrCat("every_", values.Integer("every")) : keep;
}

// Of the deepest stack: what each policy costs in time, and saves in memory, beside keeping all.
Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  std::int64_t deepest = 0;
  for (const Point& point : points) deepest = std::max(deepest, point.values.Integer("blocks"));
  const auto is_deepest = [&](const Point& point) { return point.values.Integer("blocks") == deepest; };
  const Point* const all =
      Find(points, [&](const Point& point) { return is_deepest(point) && point.values.Word("keep") == "all"; });
  const Point* const again =
      Find(points, [&](const Point& point) { return is_deepest(point) && point.values.Word("keep") == "every"; });
  if (all == nullptr || again == nullptr) return NotEnoughPoints("keeping all, and every n-th input, of a stack of one depth");
  Judgement judgement;
  for (const Point& point : points) {
    if (!is_deepest(point) || &point == all) continue;
    const double memory = point.figures.at("activation_peak_bytes") / all->figures.at("activation_peak_bytes");
    judgement.findings.push_back({absl::StrCat(PolicyText(point.values), "_time"), SpeedUp(point, *all),
                                  absl::StrFormat("times that of keeping all, by arithmetic %.3g times; %.3g of the memory",
                                                  point.figures.at("flops_ratio"), memory)});
  }
  const double time = SpeedUp(*again, *all);
  const double memory = again->figures.at("activation_peak_bytes") / all->figures.at("activation_peak_bytes");
  judgement.verdict = VerdictOf(std::abs(time / (4.0 / 3) - 1) < 0.15 && memory < 0.8);
  judgement.explanation = absl::StrFormat(
      "%d blocks: recomputing from every block's input takes %.3g times as long as keeping all, where the arithmetic is 4/3, "
      "and %.3g of its memory",
      deepest, time, memory);
  return judgement;
}

}  // namespace

Benchmark Recomputation(device::DeviceType type) {
  const bool on_cpu = type == device::DeviceType::kCpu;
  std::vector<std::string> policies = {"all", "selective", "every", "none"};
  // The CPU device's memory is the host's: nothing can move there.
  if (!on_cpu) policies.emplace_back("host");
  return {
      .name = "recomputation",
      .claim =
          "A backward pass needs what the forward pass computed; computing it again costs a third more arithmetic, 4/3, and "
          "frees most of the memory. A stack of LayerNorm-linear-GELU-linear blocks, float32, forward and backward. All: "
          "every activation is kept. Selective: inputs and first products; the cheap rest is computed again. Every: the "
          "input of every n-th block. None: nothing, each block again from the stack's input. Host: all, in the host's "
          "memory. Peak: activations and their gradients, from the allocator.",
      .axes = {WordAxis("keep", "what the forward pass keeps", policies),
               IntegerAxis("every", "blocks from one kept input to the next; 1 for other policies", 1, 256, {1, 2, 4}),
               IntegerAxis("blocks", "of the stack", 1, 256, {4, 8, 16}),
               IntegerAxis("tokens", "rows of the input", 1, 1 << 20, {on_cpu ? 256 : 4096}),
               IntegerAxis("width", "of a block; hidden is 4 times as wide", 8, kernels::microbench::kMostLayerNormColumns,
                           {on_cpu ? 256 : 1024}, 8)},
      .plot = {.x_axis = "blocks", .y = "activation_peak_bytes"},
      .unsupported_reason = &AnyDeviceWillDo,
      .makes_sense = &MakesSense,
      .make_subject = &Make,
      .judge = &Judge};
}

}  // namespace ridgeline::engine::benchmark
