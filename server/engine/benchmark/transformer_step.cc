#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/matrix_product.h"
#include "server/engine/benchmark/pieces.h"
#include "server/engine/benchmark/transformer_block.h"

namespace ridgeline::engine::benchmark {
namespace {

using kernels::fused::Mode;

constexpr char kWholeBlock[] = "block";

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const BlockGeometry& geometry : kBlockGeometries) names.emplace_back(geometry.model);
  return names;
}

std::vector<std::string> OperationNames() {
  std::vector<std::string> names(kBlockOperationNames.begin(), kBlockOperationNames.end());
  names.emplace_back(kWholeBlock);
  return names;
}

// The names are of the axes' choices.
const BlockGeometry& GeometryOf(const AxisValues& values) {
  const auto* geometry = kBlockGeometries;
  while (values.Word("model") != geometry->model) ++geometry;
  return *geometry;
}

// Of one operation, or of all that the model has.
std::vector<BlockOperation> OperationsOf(const AxisValues& values) {
  const std::string& wanted = values.Word("operation");
  std::vector<BlockOperation> operations;
  for (std::size_t i = 0; i < kBlockOperationNames.size(); ++i) {
    const auto operation = static_cast<BlockOperation>(i);
    if (!HasOperation(GeometryOf(values), operation)) continue;
    if (wanted == kWholeBlock || wanted == kBlockOperationNames[i]) operations.push_back(operation);
  }
  return operations;
}

bool MakesSense(const AxisValues& values) { return !OperationsOf(values).empty(); }

absl::StatusOr<Subject> Make(const PointContext& context) {
  const AxisValues& values = context.values;
  const BlockGeometry& geometry = GeometryOf(values);
  const kernels::DataType type = TypeOf(values.Word("type"));
  const Mode mode = values.Word("mode") == "fused" ? Mode::kFused : Mode::kUnfused;
  RIDGELINE_ASSIGN_OR_RETURN(const auto block, TransformerBlock::Create(context, geometry, values.Integer("tokens"), type, mode,
                                                                        OperationsOf(values)));
  const BlockCost cost = block->cost();
  return Subject{.kernel = absl::StrCat(values.Word("operation"), "_", Name(mode)),
                 .data_type = type,
                 .flops = cost.flops,
                 .bytes = cost.bytes,
                 .workspace_bytes = block->workspace_bytes(),
                 .queue = [block](device::Lane& lane) { return block->Queue(lane); },
                 .check = [block, &lane = context.lane] { return block->Check(lane); }};
}

// What the operations of one block take together, by part.
struct Parts {
  std::map<BlockPart, double> seconds, flops;
  std::size_t operations = 0;

  double Share(BlockPart part, const std::map<BlockPart, double>& amounts) const {
    double total = 0;
    for (const auto& [each, amount] : amounts) total += amount;
    const auto found = amounts.find(part);
    return found != amounts.end() && total > 0 ? found->second / total : 0;
  }
  double TimeShare(BlockPart part) const { return Share(part, seconds); }
  double FlopShare(BlockPart part) const { return Share(part, flops); }
};

// Of the operations of `like`'s block, in a mode.
Parts PartsOf(absl::Span<const Point> points, const Point& like, const std::string& mode) {
  Parts parts;
  for (std::size_t i = 0; i < kBlockOperationNames.size(); ++i) {
    const Point* const in_mode = Sibling(points, like, "mode", mode);
    const Point* const point = in_mode == nullptr ? nullptr : Sibling(points, *in_mode, "operation", kBlockOperationNames[i]);
    if (point == nullptr) continue;
    const BlockPart part = PartOf(static_cast<BlockOperation>(i));
    parts.seconds[part] += point->statistics.median;
    parts.flops[part] += static_cast<double>(point->report.flops);
    ++parts.operations;
  }
  return parts;
}

std::string SharesText(const Parts& parts) {
  return absl::StrFormat("%.3g %% matrix products, %.3g %% attention, %.3g %% small operations",
                         100 * parts.TimeShare(BlockPart::kProducts), 100 * parts.TimeShare(BlockPart::kAttention),
                         100 * parts.TimeShare(BlockPart::kSmall));
}

// The last whole block in both modes: of several lengths or models, the longest or the largest.
Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  const Point *fused = nullptr, *unfused = nullptr;
  for (const Point& point : points) {
    if (point.values.Word("operation") != kWholeBlock || point.values.Word("mode") != "fused") continue;
    fused = &point;
    unfused = Sibling(points, point, "mode", "unfused");
  }
  if (unfused == nullptr) return NotEnoughPoints("a whole block in both modes");
  const Parts before = PartsOf(points, *fused, "unfused"), after = PartsOf(points, *fused, "fused");
  const std::size_t expected =
      GeometryOf(fused->values).is_llama ? kBlockOperationNames.size() : kBlockOperationNames.size() - 1;
  if (before.operations < expected || after.operations < expected) return NotEnoughPoints("every operation in both modes");
  const double time_share = before.TimeShare(BlockPart::kSmall), flop_share = before.FlopShare(BlockPart::kSmall);
  const double small_gain = before.seconds.at(BlockPart::kSmall) / after.seconds.at(BlockPart::kSmall);
  return {.verdict = VerdictOf(time_share > 4 * flop_share && small_gain > 1.3),
          .explanation = absl::StrFormat("%s, unfused: %s, which are %.2g %% of the arithmetic; fused: %s",
                                         fused->values.Word("model"), SharesText(before), 100 * flop_share, SharesText(after)),
          .findings = {{"block_gain", SpeedUp(*unfused, *fused), "speed-up of the whole block, fused"},
                       {"small_operations_gain", small_gain, "of norms, rotary embedding and activation"},
                       {"attention_gain", before.seconds.at(BlockPart::kAttention) / after.seconds.at(BlockPart::kAttention),
                        "flash over standard attention"},
                       {"unfused_small_operations_share", time_share, "of a block's time"},
                       {"fused_small_operations_share", after.TimeShare(BlockPart::kSmall), "of a block's time"}}};
}

}  // namespace

Benchmark TransformerStep(device::DeviceType type) {
  const bool on_cpu = type == device::DeviceType::kCpu;
  const std::vector<std::string> types =
      on_cpu ? std::vector<std::string>{"float32"} : std::vector<std::string>{"float32", "float16", "bfloat16"};
  return {.name = "transformer_step",
          .claim =
              "Nearly all arithmetic of a transformer is in its matrix products, but norms, rotary embeddings and activations "
              "move as many bytes: unfused they take a share of the time far above theirs of the arithmetic, and fusing gives "
              "most of it back. One block forward over one sequence, causal, operation by operation and as a whole.",
          .axes = {WordAxis("operation", "of the block, or all of them", OperationNames()),
                   WordAxis("mode", "unfused: small operations a kernel a step, and standard attention", {"unfused", "fused"}),
                   WordAxis("model", "whose block it is", ModelNames(), {on_cpu ? "smollm2_135m" : "llama_3_1_8b"}),
                   WordAxis("type", "of tensors and weights", types, {on_cpu ? "float32" : "bfloat16"}),
                   IntegerAxis("tokens", "of the sequence", 1, std::int64_t{1} << 20, {on_cpu ? 1024 : 4096})},
          .plot = {.x_axis = "", .y = "seconds"},
          .unsupported_reason = &AnyDeviceWillDo,
          .makes_sense = &MakesSense,
          .make_subject = &Make,
          .judge = &Judge};
}

}  // namespace ridgeline::engine::benchmark
