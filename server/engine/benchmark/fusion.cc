#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/fused/cost.h"
#include "kernels/fused/fused.h"
#include "kernels/fused/op_info.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/fused_check.h"
#include "server/engine/benchmark/host_tensor.h"
#include "server/engine/benchmark/matrix_product.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::fused::Cost;
using kernels::fused::FusedParams;
using kernels::fused::FusedShape;
using kernels::fused::Mode;
using kernels::fused::Op;
using kernels::fused::OpInfo;
using kernels::fused::Use;

constexpr std::int64_t kHeadDim = 64;
constexpr std::int64_t kPageTokens = 16;

struct Problem {
  FusedShape shape;
  Mode mode;
  Buffer input, other, weight, bias, output, residual_output, workspace;

  // kRopeAppend: one sequence that fills pages in random order.
  std::vector<std::int32_t> pages;
  kernels::kv_cache::TokenSpan span;
  Buffer key, value, key_pages, value_pages, block_table, spans;
};

std::vector<std::string> OpNames() {
  std::vector<std::string> names;
  for (int i = 0; i < kernels::fused::kNumOps; ++i) names.emplace_back(kernels::fused::Name(static_cast<Op>(i)));
  return names;
}

Op OpOf(const std::string& name) {
  int i = 0;
  while (kernels::fused::Name(static_cast<Op>(i)) != name) ++i;  // the name is one of the axis' choices
  return static_cast<Op>(i);
}

FusedShape ShapeOf(const AxisValues& values) {
  FusedShape shape;
  shape.op = OpOf(values.Word("op"));
  shape.data_type = TypeOf(values.Word("type"));
  shape.num_rows = values.Integer("rows");
  shape.row_elems = values.Integer("columns");
  const OpInfo& info = kernels::fused::InfoOf(shape.op);
  shape.has_weight = info.weight != Use::kNone;
  shape.has_bias = info.bias != Use::kNone;
  shape.dropout = {.probability = 0.1, .seed = 1, .offset = 0};
  shape.rope.head_dim = shape.rope.rotary_dim = kHeadDim;
  if (info.appends) shape.key_elems = shape.value_elems = shape.row_elems;
  return shape;
}

absl::Status AllocateCache(const PointContext& context, Problem& problem) {
  const FusedShape& shape = problem.shape;
  const std::int64_t num_pages = (shape.num_rows + kPageTokens - 1) / kPageTokens;
  const std::int64_t bytes = num_pages * kPageTokens * shape.key_elems * kernels::ElementBytes(shape.data_type);
  RIDGELINE_ASSIGN_OR_RETURN(problem.key_pages, context.lane.Allocate(bytes));
  RIDGELINE_ASSIGN_OR_RETURN(problem.value_pages, context.lane.Allocate(bytes));
  problem.pages.resize(num_pages);
  std::iota(problem.pages.begin(), problem.pages.end(), 0);
  std::shuffle(problem.pages.begin(), problem.pages.end(), std::mt19937_64(context.seed));
  problem.span = {.row_begin = 0, .num_tokens = shape.num_rows, .table_begin = 0, .token_begin = 0};
  const device::HostSlice pages{problem.pages.data(), num_pages * static_cast<std::int64_t>(sizeof(std::int32_t))};
  const device::HostSlice span{&problem.span, sizeof(problem.span)};
  RIDGELINE_ASSIGN_OR_RETURN(problem.block_table, context.lane.Upload({&pages, 1}, nullptr));
  RIDGELINE_ASSIGN_OR_RETURN(problem.spans, context.lane.Upload({&span, 1}, nullptr));
  // The tables are read from the problem until they have been uploaded.
  return measure::AwaitLane(context.lane);
}

absl::Status Allocate(const PointContext& context, Problem& problem) {
  const FusedShape& shape = problem.shape;
  const OpInfo& info = kernels::fused::InfoOf(shape.op);
  const std::int64_t elements = shape.num_rows * shape.row_elems;
  const auto fill = [&](bool wanted, std::int64_t count, std::uint64_t stream, Buffer& buffer) -> absl::Status {
    if (!wanted) return absl::OkStatus();
    RIDGELINE_ASSIGN_OR_RETURN(buffer, context.lane.UploadRandom(shape.data_type, count, context.seed + stream, 0, 1));
    return absl::OkStatus();
  };
  // The largest first: what does not fit is refused before anything is made.
  RIDGELINE_ASSIGN_OR_RETURN(problem.workspace, context.lane.Allocate(kernels::fused::WorkspaceBytes(shape, problem.mode)));
  const std::int64_t bytes = elements * kernels::ElementBytes(shape.data_type);
  RIDGELINE_ASSIGN_OR_RETURN(problem.output, context.lane.Allocate(bytes));
  if (info.residual_output != Use::kNone) {
    RIDGELINE_ASSIGN_OR_RETURN(problem.residual_output, context.lane.Allocate(bytes));
  }
  RIDGELINE_RETURN_IF_ERROR(fill(true, elements, 0, problem.input));
  RIDGELINE_RETURN_IF_ERROR(fill(info.other != Use::kNone, elements, 1, problem.other));
  RIDGELINE_RETURN_IF_ERROR(fill(shape.has_weight, shape.row_elems, 2, problem.weight));
  RIDGELINE_RETURN_IF_ERROR(fill(shape.has_bias, shape.row_elems, 3, problem.bias));
  if (!info.appends) return absl::OkStatus();
  RIDGELINE_RETURN_IF_ERROR(fill(true, elements, 4, problem.key));
  RIDGELINE_RETURN_IF_ERROR(fill(true, elements, 5, problem.value));
  return AllocateCache(context, problem);
}

FusedParams ParamsOf(const Problem& problem) {
  const FusedShape& shape = problem.shape;
  FusedParams params{.shape = shape,
                     .input = problem.input.data(),
                     .other = problem.other.data(),
                     .weight = problem.weight.data(),
                     .bias = problem.bias.data(),
                     .output = problem.output.data(),
                     .residual_output = problem.residual_output.data(),
                     .workspace = problem.workspace.data()};
  if (!kernels::fused::InfoOf(shape.op).appends) return params;
  params.append = {.to = {.pages = {.data_type = shape.data_type,
                                    .kv_heads = shape.key_elems / kHeadDim,
                                    .head_dim = kHeadDim,
                                    .value_head_dim = kHeadDim,
                                    .page_tokens = kPageTokens,
                                    .key = problem.key_pages.data(),
                                    .value = problem.value_pages.data()},
                          .block_table = static_cast<const std::int32_t*>(problem.block_table.data()),
                          .spans = static_cast<const kernels::kv_cache::TokenSpan*>(problem.spans.data()),
                          .num_spans = 1,
                          .num_rows = shape.num_rows},
                   .key = problem.key.data(),
                   .value = problem.value.data()};
  return params;
}

// ---- The check --------------------------------------------------------------------------------------------------------------

// What the pages hold of a token.
absl::Status CheckPages(const Problem& problem, std::int64_t row, const std::array<HostTensor, 4>& tensors) {
  const auto& [key, value, key_pages, value_pages] = tensors;
  const std::int64_t slot = problem.pages[row / kPageTokens] * kPageTokens + row % kPageTokens;
  if (value_pages.Row(slot) != value.Row(row)) {
    return absl::InternalError(absl::StrCat("the value of token ", row, " is not what its page has"));
  }
  const std::vector<float> token = key.Row(row);
  return CheckFusedRow(problem.shape, problem.mode,
                       {.input = token.data(), .other = nullptr, .weight = nullptr, .bias = nullptr, .row_idx = row},
                       key_pages.Row(slot));
}

absl::StatusOr<std::array<HostTensor, 4>> ReadCache(device::Lane& lane, const Problem& problem) {
  std::array<HostTensor, 4> tensors;
  const Buffer* const buffers[] = {&problem.key, &problem.value, &problem.key_pages, &problem.value_pages};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    RIDGELINE_ASSIGN_OR_RETURN(tensors[i],
                               HostTensor::Read(lane, *buffers[i], problem.shape.data_type, problem.shape.row_elems));
  }
  return tensors;
}

absl::Status Check(device::Lane& lane, const Problem& problem) {
  const FusedShape& shape = problem.shape;
  FusedTensors tensors;
  for (const auto& [tensor, buffer] :
       {std::pair(&tensors.input, &problem.input), std::pair(&tensors.other, &problem.other),
        std::pair(&tensors.weight, &problem.weight), std::pair(&tensors.bias, &problem.bias),
        std::pair(&tensors.output, &problem.output), std::pair(&tensors.residual_output, &problem.residual_output)}) {
    RIDGELINE_ASSIGN_OR_RETURN(*tensor, HostTensor::Read(lane, *buffer, shape.data_type, shape.row_elems));
  }
  RIDGELINE_RETURN_IF_ERROR(CheckFused(shape, problem.mode, tensors));
  if (problem.pages.empty()) return absl::OkStatus();
  RIDGELINE_ASSIGN_OR_RETURN(const auto cache, ReadCache(lane, problem));
  for (const std::int64_t row : CheckedRows(shape.num_rows)) RIDGELINE_RETURN_IF_ERROR(CheckPages(problem, row, cache));
  return absl::OkStatus();
}

// ---- The points -------------------------------------------------------------------------------------------------------------

// What the formulas promise: the bytes of the chain over those of one kernel.
double PredictedGain(const FusedShape& shape) {
  return static_cast<double>(kernels::fused::CountCost(shape, Mode::kUnfused).bytes) /
         static_cast<double>(kernels::fused::CountCost(shape, Mode::kFused).bytes);
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  auto problem = std::make_shared<Problem>();
  problem->shape = ShapeOf(context.values);
  problem->mode = context.values.Word("mode") == "fused" ? Mode::kFused : Mode::kUnfused;
  const FusedShape& shape = problem->shape;
  if (const std::string why_not = kernels::fused::WhyNot(shape); !why_not.empty()) {
    return absl::InvalidArgumentError(why_not);
  }
  RIDGELINE_RETURN_IF_ERROR(Allocate(context, *problem));
  const Cost cost = kernels::fused::CountCost(shape, problem->mode);
  const std::map<std::string, double> figures = {
      {"kernels", cost.num_kernels},
      {"bytes_per_element", static_cast<double>(cost.bytes) / static_cast<double>(shape.num_rows * shape.row_elems)},
      {"predicted_gain", PredictedGain(shape)}};
  return Subject{.kernel = absl::StrCat(kernels::fused::Name(shape.op), "_", Name(problem->mode)),
                 .data_type = shape.data_type,
                 .flops = cost.flops,
                 .bytes = cost.bytes,
                 .workspace_bytes = problem->workspace.size_bytes(),
                 .queue = [problem](device::Lane& lane) { return lane.Fuse(ParamsOf(*problem), problem->mode, nullptr); },
                 .check = [&lane = context.lane, problem] { return Check(lane, *problem); },
                 .figures = [figures](double /*seconds*/) { return figures; }};
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  Judgement judgement;
  double least = 0, most = 0, log_sum = 0;
  for (const Point& fused : points) {
    const Point* const chain = fused.values.Word("mode") == "fused" ? Sibling(points, fused, "mode", "unfused") : nullptr;
    if (chain == nullptr) continue;
    const double gain = SpeedUp(*chain, fused), predicted = fused.figures.at("predicted_gain");
    least = judgement.findings.empty() ? gain : std::min(least, gain);
    most = std::max(most, gain);
    log_sum += std::log(gain / predicted);
    judgement.findings.push_back(
        {absl::StrCat(fused.values.Word("op"), "_gain"), gain, absl::StrFormat("times as fast; by its bytes %.3g", predicted)});
  }
  if (judgement.findings.empty()) return NotEnoughPoints("an operation in both modes");
  const double kept = std::exp(log_sum / static_cast<double>(judgement.findings.size()));
  judgement.verdict = VerdictOf(kept > 0.7);
  judgement.explanation = absl::StrFormat(
      "fused operations are %.3g to %.3g times as fast as their chains, on average %.0f %% of what the bytes promise", least,
      most, 100 * kept);
  return judgement;
}

}  // namespace

Benchmark Fusion(device::DeviceType type) {
  const bool on_cpu = type == device::DeviceType::kCpu;
  return {.name = "fusion",
          .claim =
              "An operation made of elementary steps spends its time on carrying their results to memory and back. Fused "
              "into one kernel it reads each input once and writes each output once, so it gains what it saves in bytes. "
              "Each of the server's fused operations against its chain, a kernel a step, as an eager framework runs it.",
          .axes = {WordAxis("op", "the operation", OpNames()),
                   WordAxis("mode", "a kernel a step, or one kernel", {"unfused", "fused"}),
                   WordAxis("type", "of the tensors", {"float32", "float16", "bfloat16"}, {on_cpu ? "float32" : "bfloat16"}),
                   IntegerAxis("rows", "tokens", 1, std::int64_t{1} << 31, {on_cpu ? 4096 : 16384}),
                   IntegerAxis("columns", "elements of a row, in heads of 64", kHeadDim, kernels::fused::kMaxRowElems, {4096},
                               kHeadDim)},
          .plot = {.x_axis = "", .y = "seconds"},
          .unsupported_reason = &AnyDeviceWillDo,
          .make_subject = &Make,
          .judge = &Judge};
}

}  // namespace ridgeline::engine::benchmark
