#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/matrix_product.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

absl::StatusOr<Subject> Make(const PointContext& context) {
  const std::int64_t width = context.values.Integer("width");
  RIDGELINE_ASSIGN_OR_RETURN(const auto product, MatrixProduct::Create(context, {TypeOf(context.values.Word("type"))},
                                                                       {context.values.Integer("batch"), width, width}));
  return product->MakeSubject(context);
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  const Point *smallest = nullptr, *largest = nullptr;
  for (const Point& point : points) {
    if (point.values.Word("type") != points.front().values.Word("type")) continue;
    const std::int64_t batch = point.values.Integer("batch");
    if (smallest == nullptr || batch < smallest->values.Integer("batch")) smallest = &point;
    if (largest == nullptr || batch > largest->values.Integer("batch")) largest = &point;
  }
  if (largest->values.Integer("batch") < 64 * smallest->values.Integer("batch"))
    return NotEnoughPoints("batches from 1 to 64 and more");
  const double gain = largest->report.flops_per_second / smallest->report.flops_per_second;
  return {.verdict = VerdictOf(gain > 4),
          .explanation = absl::StrFormat("a batch of %d computes %.3g times as much a second as one of %d",
                                         largest->values.Integer("batch"), gain, smallest->values.Integer("batch")),
          .findings = {{"largest_over_smallest_batch", gain, "ratio of arithmetic rates"}}};
}

}  // namespace

Benchmark BatchSize() {
  return {.name = "batch_size",
          .claim =
              "A layer's weights are read once for a whole batch: utilisation grows with the batch, until arithmetic and no "
              "longer memory is the limit. Activations [batch, width] times weights [width, width].",
          .axes = {WordAxis("type", "of activations and weights", {"float32", "float16", "bfloat16"}, {"float32", "bfloat16"}),
                   IntegerAxis("batch", "rows of the activations", 1, 65536, {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}),
                   IntegerAxis("width", "of the layer", 16, 32768, {2048})},
          .plot = {.x_axis = "batch", .y = "flops_per_second"},
          .unsupported_reason = &AnyDeviceWillDo,
          .make_subject = &Make,
          .judge = &Judge};
}

}  // namespace ridgeline::engine::benchmark
