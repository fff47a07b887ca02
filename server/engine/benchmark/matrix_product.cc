#include "server/engine/benchmark/matrix_product.h"

#include <cmath>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/convert.h"
#include "kernels/common/saturating.h"
#include "kernels/microbench/gemm_ladder.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::DataType;

// Elements of C that are compared: a grid with steps that are prime, so that no tile's position is missed for long.
constexpr std::int64_t kRowStep = 61, kColumnStep = 67;

// sign, exponent, mantissa: 1, 4, 3 bits without infinities, or 1, 5, 2 bits.
double WidenFloat8(DataType type, std::uint8_t bits) {
  const int mantissa_bits = type == DataType::kFloat8E4M3 ? 3 : 2, bias = type == DataType::kFloat8E4M3 ? 7 : 15;
  const int exponent = (bits & 0x7f) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits < 0x80 ? 1 : -1;
  const bool is_special = type == DataType::kFloat8E4M3 ? (bits & 0x7f) == 0x7f : exponent == 0x1f;
  if (is_special) return type == DataType::kFloat8E5M2 && mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

std::vector<double> WidenFloat8(DataType type, const std::uint8_t* from, std::int64_t elements) {
  double widened[256];
  for (int bits = 0; bits < 256; ++bits) widened[bits] = WidenFloat8(type, static_cast<std::uint8_t>(bits));
  std::vector<double> values(elements);
  for (std::int64_t i = 0; i < elements; ++i) values[i] = widened[from[i]];
  return values;
}

}  // namespace

DataType TypeOf(const std::string& name) {
  if (name == "float16") return DataType::kFloat16;
  return name == "bfloat16" ? DataType::kBFloat16 : DataType::kFloat32;
}

absl::StatusOr<std::shared_ptr<MatrixProduct>> MatrixProduct::Create(const PointContext& context, ProductType type,
                                                                     ProductShape shape, Deviations deviations) {
  const std::shared_ptr<MatrixProduct> product = absl::WrapUnique(new MatrixProduct(type, shape));
  RIDGELINE_ASSIGN_OR_RETURN(product->a_, product->Fill(context, shape.m, 0, deviations.a));
  RIDGELINE_ASSIGN_OR_RETURN(product->b_, product->Fill(context, shape.n, 1, deviations.b));
  RIDGELINE_ASSIGN_OR_RETURN(product->c_, context.lane.Allocate(kernels::SaturatingMultiply({shape.m, shape.n, 4})));
  return product;
}

absl::StatusOr<Buffer> MatrixProduct::Fill(const PointContext& context, std::int64_t rows, std::uint64_t stream,
                                           float deviation) {
  const std::int64_t elements = kernels::SaturatingMultiply({rows, shape_.k});
  const DataType type = type_.data_type;
  const bool is_float8 = kernels::ElementBytes(type) == 1;
  RIDGELINE_ASSIGN_OR_RETURN(Buffer random, context.lane.UploadRandom(is_float8 ? DataType::kFloat32 : type, elements,
                                                                      context.seed + stream, 0, deviation));
  if (!is_float8) return random;
  RIDGELINE_ASSIGN_OR_RETURN(Buffer rounded, context.lane.Allocate(elements));
  RIDGELINE_RETURN_IF_ERROR(context.lane.Run(kernels::microbench::ToFloat8Params{
      .type = type, .elements = elements, .source = static_cast<const float*>(random.data()), .destination = rounded.data()}));
  return rounded;
}

absl::Status MatrixProduct::Queue(device::Lane& lane) {
  const auto [m, n, k] = shape_;
  if (!type_.is_by_matrix_unit) return lane.Gemm(type_.data_type, m, n, k, a_, b_, c_);
  return lane.Run(kernels::microbench::CudaGemmRungParams{.rung = kernels::microbench::CudaGemmRung::kMma,
                                                          .type = type_.data_type,
                                                          .m = m,
                                                          .n = n,
                                                          .k = k,
                                                          .a = a_.data(),
                                                          .b = nullptr,
                                                          .b_transposed = b_.data(),
                                                          .c = static_cast<float*>(c_.data())});
}

Subject MatrixProduct::MakeSubject(const PointContext& context) {
  const auto self = shared_from_this();
  const auto [m, n, k] = shape_;
  const DataType type = type_.data_type;
  return Subject{.kernel = absl::StrCat(type_.is_by_matrix_unit ? "mma" : "gemm", "[", kernels::Name(type), ",m=", m, ",n=", n,
                                        ",k=", k, "]"),
                 .data_type = type,
                 .has_roof = !type_.is_by_matrix_unit,
                 .flops = 2 * m * n * k,
                 .bytes = (m * k + n * k) * kernels::ElementBytes(type) + m * n * 4,
                 .queue = [self](device::Lane& lane) { return self->Queue(lane); },
                 .check = [self, &lane = context.lane] { return self->Check(lane); }};
}

absl::StatusOr<std::vector<double>> MatrixProduct::Read(device::Lane& lane, const Buffer& buffer, std::int64_t elements) const {
  const DataType type = type_.data_type;
  RIDGELINE_ASSIGN_OR_RETURN(const auto host, measure::ReadBack(lane, buffer, elements * kernels::ElementBytes(type)));
  if (kernels::ElementBytes(type) == 1) return WidenFloat8(type, static_cast<const std::uint8_t*>(host->data()), elements);
  std::vector<float> floats(elements);
  kernels::ConvertToFloat32(type, host->data(), elements, floats.data());
  return std::vector<double>(floats.begin(), floats.end());
}

absl::StatusOr<std::vector<double>> MatrixProduct::ReadA(device::Lane& lane) const {
  return Read(lane, a_, shape_.m * shape_.k);
}
absl::StatusOr<std::vector<double>> MatrixProduct::ReadB(device::Lane& lane) const {
  return Read(lane, b_, shape_.n * shape_.k);
}
absl::StatusOr<std::vector<float>> MatrixProduct::ReadC(device::Lane& lane) const {
  return ReadFloats(lane, c_, shape_.m * shape_.n);
}

// A sum of k products in float32 errs by at most about k / 2 epsilons of the sum of magnitudes.
absl::Status MatrixProduct::Check(device::Lane& lane) const {
  constexpr double kEpsilon = 0x1p-23;
  // What TF32 cuts off of each factor, as a share.
  const double cut_off = type_.is_by_matrix_unit && type_.data_type == DataType::kFloat32 ? 2 * 0x1p-10 : 0;
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<double> a, ReadA(lane));
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<double> b, ReadB(lane));
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> c, ReadC(lane));
  for (std::int64_t i = 0; i < shape_.m; i += kRowStep) {
    for (std::int64_t j = 0; j < shape_.n; j += kColumnStep) {
      double want = 0, magnitude = 0;
      for (std::int64_t k = 0; k < shape_.k; ++k) {
        const double term = a[i * shape_.k + k] * b[j * shape_.k + k];
        want += term;
        magnitude += std::abs(term);
      }
      // Inputs that have overflowed make sums that are no numbers, which the device must agree to.
      if (!std::isfinite(want) && !std::isfinite(c[i * shape_.n + j])) continue;
      const double tolerance = magnitude * (kEpsilon * static_cast<double>(shape_.k + 2) / 2 + cut_off);
      RIDGELINE_RETURN_IF_ERROR(ExpectNear("an element of the product", c[i * shape_.n + j], want, tolerance));
    }
  }
  return absl::OkStatus();
}

}  // namespace ridgeline::engine::benchmark
