#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cost.h"
#include "kernels/attention/plan.h"
#include "kernels/common/convert.h"
#include "kernels/common/saturating.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/matrix_product.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::DataType;
using kernels::attention::Algorithm;
using kernels::attention::AttentionParams;
using kernels::attention::AttentionPlan;
using kernels::attention::AttentionShape;
using kernels::attention::Sequence;

constexpr int kCheckedRows = 12;

struct Problem {
  AttentionShape shape;
  std::int64_t tokens;        // of keys, of each sequence
  std::int64_t query_tokens;  // likewise
  std::vector<Sequence> sequences;
  std::vector<std::int32_t> block_table;  // pages of all sequences, in random order; empty: dense
  AttentionPlan plan;
  Buffer query, key, value, sequence_table, block_table_on_device, output, workspace;
};

bool IsDecode(const AxisValues& values) { return values.Word("phase") == "decode"; }

std::int64_t PagesPerSequence(const Problem& problem) {
  return (problem.tokens + problem.shape.page_tokens - 1) / problem.shape.page_tokens;
}

// Where tokens lie: packed one sequence after the other, or in pages that are dealt out at random.
void LayOutSequences(std::uint64_t seed, Problem& problem) {
  const bool paged = problem.shape.IsPaged();
  const std::int64_t entries = paged ? PagesPerSequence(problem) : problem.tokens;
  for (std::int64_t s = 0; s < problem.shape.num_sequences; ++s) {
    problem.sequences.push_back({.query_begin = s * problem.query_tokens,
                                 .query_tokens = problem.query_tokens,
                                 .key_begin = s * entries,
                                 .key_tokens = problem.tokens,
                                 .lse_begin = 0});
  }
  if (!paged) return;
  problem.block_table.resize(problem.shape.num_sequences * entries);
  std::iota(problem.block_table.begin(), problem.block_table.end(), 0);
  std::shuffle(problem.block_table.begin(), problem.block_table.end(), std::mt19937_64(seed));
}

Problem MakeProblem(const PointContext& context) {
  const AxisValues& values = context.values;
  Problem problem{};
  problem.tokens = values.Integer("tokens");
  problem.query_tokens = IsDecode(values) ? 1 : problem.tokens;
  const DataType type = TypeOf(values.Word("type"));
  problem.shape = {.data_type = type,
                   .output_data_type = type,
                   .num_sequences = values.Integer("batch"),
                   .query_heads = values.Integer("query_heads"),
                   .kv_heads = values.Integer("kv_heads"),
                   .head_dim = values.Integer("head_dim"),
                   .value_head_dim = values.Integer("head_dim"),
                   .page_tokens = values.Integer("page_tokens")};
  if (values.Word("mask") == "causal") problem.shape.window_right = 0;
  LayOutSequences(context.seed, problem);
  return problem;
}

absl::Status AllocateTensors(const PointContext& context, Problem& problem) {
  const AttentionShape& shape = problem.shape;
  const std::int64_t queries = shape.num_sequences * problem.query_tokens * shape.query_heads * shape.head_dim;
  const std::int64_t key_tokens = shape.IsPaged() ? static_cast<std::int64_t>(problem.block_table.size()) * shape.page_tokens
                                                  : shape.num_sequences * problem.tokens;
  const std::int64_t keys = key_tokens * shape.kv_heads * shape.head_dim;
  const auto fill = [&](std::int64_t elements, std::uint64_t stream) {
    return context.lane.UploadRandom(shape.data_type, elements, context.seed + stream, 0, 1);
  };
  // The largest first: what does not fit is refused before anything is made.
  RIDGELINE_ASSIGN_OR_RETURN(problem.workspace, context.lane.Allocate(problem.plan.workspace_bytes));
  RIDGELINE_ASSIGN_OR_RETURN(problem.query, fill(queries, 0));
  RIDGELINE_ASSIGN_OR_RETURN(problem.key, fill(keys, 1));
  RIDGELINE_ASSIGN_OR_RETURN(problem.value, fill(keys, 2));
  RIDGELINE_ASSIGN_OR_RETURN(problem.output, context.lane.Allocate(queries * kernels::ElementBytes(shape.output_data_type)));
  const device::HostSlice sequences{problem.sequences.data(),
                                    static_cast<std::int64_t>(problem.sequences.size() * sizeof(Sequence))};
  RIDGELINE_ASSIGN_OR_RETURN(problem.sequence_table, context.lane.Upload({&sequences, 1}, nullptr));
  if (!shape.IsPaged()) return absl::OkStatus();
  const device::HostSlice pages{problem.block_table.data(), static_cast<std::int64_t>(problem.block_table.size() * 4)};
  RIDGELINE_ASSIGN_OR_RETURN(problem.block_table_on_device, context.lane.Upload({&pages, 1}, nullptr));
  return absl::OkStatus();
}

AttentionParams ParamsOf(const Problem& problem) {
  return {.shape = problem.shape,
          .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(problem.shape.head_dim))),
          .sequences = static_cast<const Sequence*>(problem.sequence_table.data()),
          .query = problem.query.data(),
          .key = problem.key.data(),
          .value = problem.value.data(),
          .block_table = static_cast<const std::int32_t*>(problem.block_table_on_device.data()),
          .output = problem.output.data(),
          .workspace = problem.workspace.data()};
}

absl::StatusOr<std::vector<float>> ReadTensor(device::Lane& lane, const Buffer& buffer, DataType type) {
  RIDGELINE_ASSIGN_OR_RETURN(const auto host, measure::ReadBack(lane, buffer, buffer.size_bytes()));
  std::vector<float> floats(buffer.size_bytes() / kernels::ElementBytes(type));
  kernels::ConvertToFloat32(type, host->data(), static_cast<std::int64_t>(floats.size()), floats.data());
  return floats;
}

struct HostTensors {
  std::vector<float> query, key, value, output;
};

// First element of token t's row of a KV head.
std::int64_t RowOfKey(const Problem& problem, std::int64_t sequence, std::int64_t t, std::int64_t kv_head) {
  const AttentionShape& shape = problem.shape;
  std::int64_t token = problem.sequences[sequence].key_begin + t;
  if (shape.IsPaged()) {
    const std::int64_t entry = problem.sequences[sequence].key_begin + t / shape.page_tokens;
    token = problem.block_table[entry] * shape.page_tokens + t % shape.page_tokens;
  }
  return (token * shape.kv_heads + kv_head) * shape.head_dim;
}

// One row of the output by plain loops in double.
std::vector<double> ReferenceRow(const Problem& problem, const HostTensors& tensors, std::int64_t sequence, std::int64_t i,
                                 std::int64_t head) {
  const AttentionShape& shape = problem.shape;
  const std::int64_t kv_head = head / shape.GroupHeads();
  const float* const q =
      tensors.query.data() + ((sequence * problem.query_tokens + i) * shape.query_heads + head) * shape.head_dim;
  const std::int64_t visible = shape.window_right == 0 ? i + problem.tokens - problem.query_tokens + 1 : problem.tokens;
  std::vector<double> weights(visible);
  for (std::int64_t t = 0; t < visible; ++t) {
    const float* const k = tensors.key.data() + RowOfKey(problem, sequence, t, kv_head);
    double dot = 0;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) dot += static_cast<double>(q[d]) * k[d];
    weights[t] = dot / std::sqrt(static_cast<double>(shape.head_dim));
  }
  const double maximum = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - maximum);
  std::vector<double> row(shape.head_dim, 0.0);
  for (std::int64_t t = 0; t < visible; ++t) {
    const float* const v = tensors.value.data() + RowOfKey(problem, sequence, t, kv_head);
    for (std::int64_t d = 0; d < shape.head_dim; ++d) row[d] += weights[t] / sum * v[d];
  }
  return row;
}

// Some rows, drawn at random; weights sum to one and values are below 6 or so, hence absolute bounds.
absl::Status Check(device::Lane& lane, const Problem& problem, std::uint64_t seed) {
  const AttentionShape& shape = problem.shape;
  HostTensors tensors;
  RIDGELINE_ASSIGN_OR_RETURN(tensors.query, ReadTensor(lane, problem.query, shape.data_type));
  RIDGELINE_ASSIGN_OR_RETURN(tensors.key, ReadTensor(lane, problem.key, shape.data_type));
  RIDGELINE_ASSIGN_OR_RETURN(tensors.value, ReadTensor(lane, problem.value, shape.data_type));
  RIDGELINE_ASSIGN_OR_RETURN(tensors.output, ReadTensor(lane, problem.output, shape.output_data_type));
  const double tolerance = shape.data_type == DataType::kFloat32 ? 5e-5 : shape.data_type == DataType::kFloat16 ? 8e-3 : 6e-2;
  std::mt19937_64 random(seed);
  const auto below = [&](std::int64_t end) { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end)); };
  for (int row = 0; row < kCheckedRows; ++row) {
    const std::int64_t sequence = below(shape.num_sequences), i = below(problem.query_tokens), head = below(shape.query_heads);
    const std::vector<double> want = ReferenceRow(problem, tensors, sequence, i, head);
    const std::int64_t at = ((sequence * problem.query_tokens + i) * shape.query_heads + head) * shape.head_dim;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      RIDGELINE_RETURN_IF_ERROR(
          ExpectNear(absl::StrCat("the output of query ", i), tensors.output[at + d], want[d], tolerance));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  auto problem = std::make_shared<Problem>(MakeProblem(context));
  const AttentionShape& shape = problem->shape;
  if (shape.query_heads % shape.kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("query_heads is ", shape.query_heads, "; it must be a multiple of kv_heads, ", shape.kv_heads));
  }
  const Algorithm algorithm = context.values.Word("algorithm") == "standard" ? Algorithm::kStandard : Algorithm::kFlash;
  RIDGELINE_ASSIGN_OR_RETURN(problem->plan, context.device.PlanAttention(shape, problem->sequences, algorithm));
  RIDGELINE_RETURN_IF_ERROR(AllocateTensors(context, *problem));
  // The tables are read from this problem until they have been uploaded.
  RIDGELINE_RETURN_IF_ERROR(measure::AwaitLane(context.lane));
  const kernels::attention::Cost cost =
      kernels::attention::CountCost(shape, problem->sequences.data(), {}, problem->plan.algorithm);
  return Subject{.kernel = problem->plan.kernel,
                 .kernel_reason = problem->plan.reason,
                 .algorithm = problem->plan.algorithm,
                 .data_type = shape.data_type,
                 .flops = cost.flops,
                 .bytes = cost.bytes,
                 .workspace_bytes = problem->plan.workspace_bytes,
                 .queue =
                     [problem](device::Lane& lane) {
                       return lane.Attend(problem->plan, ParamsOf(*problem), problem->sequences, nullptr).status();
                     },
                 .check = [&lane = context.lane, problem, seed = context.seed] { return Check(lane, *problem, seed); }};
}

// Pages hold what a cache has, which is read by decode steps.
bool MakesSense(const AxisValues& values) { return IsDecode(values) || values.Integer("page_tokens") == 0; }

// The other algorithm's point at otherwise the same values; null: there is none.
const Point* OtherAlgorithm(absl::Span<const Point> points, const Point& flash) {
  return Find(points, [&](const Point& point) {
    const auto& a = point.values.all();
    const auto& b = flash.values.all();
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i].first != "algorithm" && a[i] != b[i]) return false;
    }
    return point.values.Word("algorithm") == "standard";
  });
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  std::int64_t longest = 0, crossing = std::numeric_limits<std::int64_t>::max();
  double gain = 0, flash_workspace = 0, standard_workspace = 0;
  for (const Point& point : points) {
    const bool is_flash_prefill = !IsDecode(point.values) && point.values.Word("algorithm") == "flash";
    const Point* const standard = is_flash_prefill ? OtherAlgorithm(points, point) : nullptr;
    if (standard == nullptr) continue;
    const std::int64_t tokens = point.values.Integer("tokens");
    const double faster = SpeedUp(*standard, point);
    if (faster > 1) crossing = std::min(crossing, tokens);
    if (tokens < longest || (tokens == longest && faster < gain)) continue;
    longest = tokens;
    gain = faster;
    flash_workspace = static_cast<double>(point.report.workspace_bytes);
    standard_workspace = static_cast<double>(standard->report.workspace_bytes);
  }
  if (longest == 0) return NotEnoughPoints("prefill by both algorithms");
  Judgement judgement{.verdict = VerdictOf(gain > 1),
                      .explanation = absl::StrFormat(
                          "at %d tokens flash is %.3g times as fast as standard, with %s in place of %s", longest, gain,
                          flash_workspace > 0 ? absl::StrCat("a workspace of ", SizeText(flash_workspace)) : "no workspace",
                          SizeText(standard_workspace)),
                      .findings = {{"flash_over_standard", gain, "speed-up of prefill at the longest length"}}};
  if (crossing <= longest) {
    judgement.findings.push_back(
        {"crossing_tokens", static_cast<double>(crossing), "shortest length at which flash is faster"});
  }
  return judgement;
}

}  // namespace

Benchmark AttentionAlgorithms(device::DeviceType type) {
  // What each is used with: matrix units know no float32.
  const bool is_cpu = type == device::DeviceType::kCpu;
  return {.name = "attention",
          .claim =
              "Attention is bound by memory as long as it writes its N x N scores there: flash attention keeps them in fast "
              "memory, so it wins more the longer the sequence, in time and above all in workspace. Decode steps read the "
              "whole cache for one query, so fewer KV heads help them most, and pages cost little.",
          .axes = {WordAxis("phase", "all queries at once, or one a sequence", {"prefill", "decode"}),
                   WordAxis("algorithm", "scores through memory, or online", {"standard", "flash"}),
                   IntegerAxis("tokens", "keys of each sequence", 1, std::int64_t{1} << 24, {256, 512, 1024, 2048, 4096}),
                   IntegerAxis("batch", "sequences", 1, 4096, {1}),
                   IntegerAxis("query_heads", "heads of the queries", 1, 1024, {8}),
                   IntegerAxis("kv_heads", "heads of keys and values, each shared by query_heads / kv_heads", 1, 1024, {8, 2}),
                   IntegerAxis("head_dim", "elements of a head", 8, 256, {is_cpu ? 64 : 128}, 8),
                   IntegerAxis("page_tokens", "tokens of a page of the KV cache; 0: keys lie contiguous", 0, 256, {0, 16}),
                   WordAxis("mask", "of the keys that a query sees", {"causal", "none"}, {"causal"}),
                   WordAxis("type", "of queries, keys and values", {"float32", "float16", "bfloat16"},
                            {is_cpu ? "float32" : "bfloat16"})},
          .plot = {.x_axis = "tokens", .y = "seconds"},
          .unsupported_reason = &AnyDeviceWillDo,
          .makes_sense = &MakesSense,
          .make_subject = &Make,
          .judge = &Judge};
}

}  // namespace ridgeline::engine::benchmark
