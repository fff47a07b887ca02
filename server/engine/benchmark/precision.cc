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
#include "server/engine/benchmark/row_precision.h"

namespace ridgeline::engine::benchmark {
namespace {

using kernels::DataType;

constexpr std::int64_t kStep = 29;  // rows and columns of the product between those that are compared

// What loss scaling multiplies gradients by before they are rounded; products are divided by it.
constexpr double kLossScale = 65536;

bool IsProduct(const std::string& operation) { return operation != "layer_norm" && operation != "softmax"; }

// How far the product is from that of the same inputs before they were rounded to the type.
struct Error {
  double relative = 0;         // root mean square of the error over that of the exact product; of the finite elements
  double nonfinite_share = 0;  // of the elements that were compared
  double zero_share = 0;
};

// `scale`: how much too large the product is.
absl::StatusOr<Error> Compare(device::Lane& lane, const MatrixProduct& product, const MatrixProduct& exact, double scale) {
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
      const double got = c[i * n + j] / scale;
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

ProductType ProductTypeOf(const std::string& name) {
  if (name == "tf32") return {DataType::kFloat32, /*is_by_matrix_unit=*/true};
  if (name == "float8_e4m3") return {DataType::kFloat8E4M3, /*is_by_matrix_unit=*/true};
  if (name == "float8_e5m2") return {DataType::kFloat8E5M2, /*is_by_matrix_unit=*/true};
  return {TypeOf(name)};
}

// Gradients are A, small beside the weights, B; in a plain product both are of the magnitude.
absl::StatusOr<Subject> MakeProduct(const PointContext& context, const std::string& operation) {
  const std::int64_t size = context.values.Integer("size");
  double magnitude = 0;
  RIDGELINE_CHECK(absl::SimpleAtod(context.values.Word("magnitude"), &magnitude));
  const double scale = operation == "gradient_scaled" ? kLossScale : 1;
  const auto deviation = static_cast<float>(magnitude), weights = operation == "product" ? deviation : 1.0f;
  const ProductShape shape{size, size, size};
  RIDGELINE_ASSIGN_OR_RETURN(const auto product,
                             MatrixProduct::Create(context, ProductTypeOf(context.values.Word("type")), shape,
                                                   {static_cast<float>(deviation * scale), weights}));
  RIDGELINE_ASSIGN_OR_RETURN(const auto exact,
                             MatrixProduct::Create(context, {DataType::kFloat32}, shape, {deviation, weights}));
  Subject subject = product->MakeSubject(context);
  const auto error = std::make_shared<Error>();
  subject.check = [error, product, exact, scale, &lane = context.lane,
                   right = std::move(subject.check)]() mutable -> absl::Status {
    RIDGELINE_RETURN_IF_ERROR(right());
    RIDGELINE_ASSIGN_OR_RETURN(*error, Compare(lane, *product, *exact, scale));
    return absl::OkStatus();
  };
  subject.figures = [error](double /*seconds*/) {
    return std::map<std::string, double>{
        {"relative_error", error->relative}, {"nonfinite_share", error->nonfinite_share}, {"zero_share", error->zero_share}};
  };
  return subject;
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  const std::string& operation = context.values.Word("operation");
  if (IsProduct(operation)) return MakeProduct(context, operation);
  const auto op = operation == "softmax" ? kernels::fused::Op::kSoftmax : kernels::fused::Op::kLayerNorm;
  return MakeRowPrecision(context, op, TypeOf(context.values.Word("type")));
}

// Rows are normalised whatever their magnitude, and only the common types have kernels for them; gradients are small.
bool MakesSense(const AxisValues& values) {
  const std::string& operation = values.Word("operation");
  const std::string& type = values.Word("type");
  const std::string& magnitude = values.Word("magnitude");
  if (operation == "product") return true;
  if (type != "float32" && type != "float16" && type != "bfloat16") return false;
  return IsProduct(operation) ? magnitude == "1e-8" : magnitude == "1";
}

// How much faster bfloat16 is than float32, and what of float16's gradients loss scaling rescues.
void AddFindings(absl::Span<const Point> points, Judgement& judgement) {
  const auto at = [&](const std::string& operation, const std::string& type) {
    return Find(points, [=](const Point& point) {
      return point.values.Word("operation") == operation && point.values.Word("type") == type;
    });
  };
  for (const char* operation : {"layer_norm", "softmax"}) {
    const Point* const single = at(operation, "float32");
    const Point* const brain = at(operation, "bfloat16");
    if (single == nullptr || brain == nullptr) continue;
    judgement.findings.push_back(
        {absl::StrCat("bfloat16_over_float32_", operation), SpeedUp(*single, *brain), "where memory is the limit"});
  }
  for (const char* operation : {"gradient", "gradient_scaled"}) {
    const Point* const half = at(operation, "float16");
    if (half == nullptr) continue;
    judgement.findings.push_back({absl::StrCat("float16_", operation, "_zero_share"), half->figures.at("zero_share"),
                                  "of products of gradients of 1e-8 by weights of 1"});
  }
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  const auto at = [&](const std::string& type, const std::string& magnitude) {
    return Find(points, [=](const Point& point) {
      return point.values.Word("operation") == "product" && point.values.Word("type") == type &&
             point.values.Word("magnitude") == magnitude;
    });
  };
  const Point* const single = at("float32", "1");
  const Point* const half = at("float16", "1");
  const Point* const brain = at("bfloat16", "1");
  const Point* const large_half = at("float16", "1e5");
  const Point* const large_brain = at("bfloat16", "1e5");
  if (single == nullptr || half == nullptr || brain == nullptr || large_half == nullptr || large_brain == nullptr) {
    return NotEnoughPoints("products of all 16- and 32-bit types at magnitudes 1 and 1e5");
  }
  const auto error = [](const Point& point) { return point.figures.at("relative_error"); };
  const bool range = large_half->figures.at("nonfinite_share") > 0.5 && large_brain->figures.at("nonfinite_share") == 0;
  const bool digits = error(*single) < error(*half) && error(*half) < error(*brain);
  Judgement judgement{.verdict = VerdictOf(range && digits),
                      .explanation = absl::StrFormat(
                          "errors: float32 %.2g, float16 %.2g, bfloat16 %.2g; at 1e5 %.0f %% of float16's results "
                          "are no numbers, of bfloat16's %.0f %%; bfloat16 has %.2f times float32's rate here",
                          error(*single), error(*half), error(*brain), 100 * large_half->figures.at("nonfinite_share"),
                          100 * large_brain->figures.at("nonfinite_share"), SpeedUp(*single, *brain)),
                      .findings = {{"float16_relative_error", error(*half), "of a product, against double precision"},
                                   {"bfloat16_relative_error", error(*brain), "of a product, against double precision"},
                                   {"bfloat16_over_float32", SpeedUp(*single, *brain), "speed of the product"}}};
  AddFindings(points, judgement);
  return judgement;
}

Benchmark OnCpu() {
  return {
      .name = "precision",
      .claim =
          "Of 16 bits float16 gives more to digits and bfloat16 more to range: the one errs less, the other does not "
          "overflow where float32 does not. Where there are units for them, products are computed faster, and layer norm "
          "and softmax no faster than their bytes are fewer. Gradients of 1e-8, by weights of 1, are nothing in float16; "
          "multiplied by 65536 before they are rounded (loss scaling) they are rescued. Products of matrices of "
          "normal(0, magnitude²).",
      .axes = {WordAxis("operation", "what is computed", {"product", "gradient", "gradient_scaled", "layer_norm", "softmax"}),
               WordAxis("type", "of the inputs; sums are float32", {"float32", "float16", "bfloat16"}),
               WordAxis("magnitude", "standard deviation of the inputs", {"1e-8", "1", "1e5"}),
               IntegerAxis("size", "rows and columns of each matrix; a fourth of the rows of layer norm and softmax", 64, 8192,
                           {512})},
      .plot = {.x_axis = "", .y = "relative_error"},
      .unsupported_reason = &AnyDeviceWillDo,
      .makes_sense = &MakesSense,
      .make_subject = &Make,
      .judge = &Judge};
}

// A product of 512 is too small to show a GPU's rate.
Benchmark OnCuda() {
  Benchmark benchmark = OnCpu();
  benchmark.claim +=
      " tf32 and 8-bit floats by mma.sync, the others by cuBLAS; what is beyond the range of an 8-bit float becomes the "
      "largest "
      "of it.";
  benchmark.axes[1] = WordAxis("type", "of the inputs; sums are float32",
                               {"float32", "tf32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2"});
  benchmark.axes[3].default_values = {"2048"};
  return benchmark;
}

}  // namespace

Benchmark Precision(device::DeviceType type) { return type == device::DeviceType::kCpu ? OnCpu() : OnCuda(); }

}  // namespace ridgeline::engine::benchmark
