#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/check.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/matrix_product.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using kernels::DataType;

constexpr std::int64_t kStep = 29;  // rows and columns of the product between those that are compared

// How far the product is from that of the same inputs before they were rounded to the type.
struct Error {
  double relative = 0;         // root mean square of the error over that of the exact product; of the finite elements
  double nonfinite_share = 0;  // of the elements that were compared
  double zero_share = 0;
};

absl::StatusOr<Error> Compare(device::Lane& lane, const MatrixProduct& product, const MatrixProduct& exact) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<double> a, exact.ReadA(lane));
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<double> b, exact.ReadB(lane));
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> c, product.ReadC(lane));
  const auto [m, n, k] = product.shape();
  double squares = 0, error_squares = 0, compared = 0;
  Error error;
  for (std::int64_t i = 0; i < m; i += kStep) {
    for (std::int64_t j = 0; j < n; j += kStep, ++compared) {
      double want = 0;
      for (std::int64_t s = 0; s < k; ++s) want += a[i * k + s] * b[j * k + s];
      const double got = c[i * n + j];
      if (!std::isfinite(got)) {
        ++error.nonfinite_share;
        continue;
      }
      if (got == 0) ++error.zero_share;
      squares += want * want;
      error_squares += (got - want) * (got - want);
    }
  }
  error.relative = squares > 0 ? std::sqrt(error_squares / squares) : 0;
  error.nonfinite_share /= compared;
  error.zero_share /= compared;
  return error;
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  const std::int64_t size = context.values.Integer("size");
  double magnitude = 0;
  RIDGELINE_CHECK(absl::SimpleAtod(context.values.Word("magnitude"), &magnitude));
  const auto deviation = static_cast<float>(magnitude);
  const ProductShape shape{size, size, size};
  RIDGELINE_ASSIGN_OR_RETURN(const auto product,
                             MatrixProduct::Create(context, TypeOf(context.values.Word("type")), shape, deviation));
  RIDGELINE_ASSIGN_OR_RETURN(const auto exact, MatrixProduct::Create(context, DataType::kFloat32, shape, deviation));
  Subject subject = product->MakeSubject(context);
  const auto error = std::make_shared<Error>();
  subject.check = [error, product, exact, &lane = context.lane, right = std::move(subject.check)]() mutable -> absl::Status {
    RIDGELINE_RETURN_IF_ERROR(right());
    RIDGELINE_ASSIGN_OR_RETURN(*error, Compare(lane, *product, *exact));
    return absl::OkStatus();
  };
  subject.figures = [error](double /*seconds*/) {
    return std::map<std::string, double>{
        {"relative_error", error->relative}, {"nonfinite_share", error->nonfinite_share}, {"zero_share", error->zero_share}};
  };
  return subject;
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  const auto at = [&](const std::string& type, const std::string& magnitude) {
    return Find(points, [=](const Point& point) {
      return point.values.Word("type") == type && point.values.Word("magnitude") == magnitude;
    });
  };
  const Point* const single = at("float32", "1");
  const Point* const half = at("float16", "1");
  const Point* const brain = at("bfloat16", "1");
  const Point* const large_half = at("float16", "1e5");
  const Point* const large_brain = at("bfloat16", "1e5");
  if (single == nullptr || half == nullptr || brain == nullptr || large_half == nullptr || large_brain == nullptr) {
    return NotEnoughPoints("all types at magnitudes 1 and 1e5");
  }
  const auto error = [](const Point& point) { return point.figures.at("relative_error"); };
  const bool range = large_half->figures.at("nonfinite_share") > 0.5 && large_brain->figures.at("nonfinite_share") == 0;
  const bool digits = error(*single) < error(*half) && error(*half) < error(*brain);
  return {.verdict = VerdictOf(range && digits),
          .explanation =
              absl::StrFormat("errors: float32 %.2g, float16 %.2g, bfloat16 %.2g; at 1e5 %.0f %% of float16's results "
                              "are no numbers, of bfloat16's %.0f %%; bfloat16 has %.2f times float32's rate here",
                              error(*single), error(*half), error(*brain), 100 * large_half->figures.at("nonfinite_share"),
                              100 * large_brain->figures.at("nonfinite_share"), SpeedUp(*single, *brain)),
          .findings = {{"float16_relative_error", error(*half), "of a product, against double precision"},
                       {"bfloat16_relative_error", error(*brain), "of a product, against double precision"},
                       {"bfloat16_over_float32", SpeedUp(*single, *brain), "speed of the product"}}};
}

}  // namespace

Benchmark Precision() {
  return {.name = "precision",
          .claim =
              "Of 16 bits float16 gives more to digits and bfloat16 more to range: the one errs less, the other does not "
              "overflow where float32 does not. Where there are units for them, both are computed faster. Products of "
              "matrices of normal(0, magnitude²).",
          .axes = {WordAxis("type", "of the inputs; sums are float32", {"float32", "float16", "bfloat16"}),
                   WordAxis("magnitude", "standard deviation of the inputs", {"1e-8", "1", "1e5"}),
                   IntegerAxis("size", "rows and columns of each matrix", 64, 8192, {512})},
          .plot = {.x_axis = "", .y = "relative_error"},
          .unsupported_reason = &AnyDeviceWillDo,
          .make_subject = &Make,
          .judge = &Judge};
}

}  // namespace ridgeline::engine::benchmark
