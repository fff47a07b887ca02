#include "server/engine/benchmark/matrix_product.h"

#include <cmath>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/convert.h"
#include "kernels/common/saturating.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::DataType;

// Elements of C that are compared: a grid with steps that are prime, so that no tile's position is missed for long.
constexpr std::int64_t kRowStep = 61, kColumnStep = 67;

}  // namespace

DataType TypeOf(const std::string& name) {
  if (name == "float16") return DataType::kFloat16;
  return name == "bfloat16" ? DataType::kBFloat16 : DataType::kFloat32;
}

absl::StatusOr<std::shared_ptr<MatrixProduct>> MatrixProduct::Create(const PointContext& context, DataType type,
                                                                     ProductShape shape, float standard_deviation) {
  const std::shared_ptr<MatrixProduct> product = absl::WrapUnique(new MatrixProduct(type, shape));
  const auto size = [](std::int64_t rows, std::int64_t columns) { return kernels::SaturatingMultiply({rows, columns}); };
  const auto fill = [&](std::int64_t elements, std::uint64_t stream) {
    return context.lane.UploadRandom(type, elements, context.seed + stream, 0, standard_deviation);
  };
  RIDGELINE_ASSIGN_OR_RETURN(product->a_, fill(size(shape.m, shape.k), 0));
  RIDGELINE_ASSIGN_OR_RETURN(product->b_, fill(size(shape.n, shape.k), 1));
  RIDGELINE_ASSIGN_OR_RETURN(product->c_, context.lane.Allocate(kernels::SaturatingMultiply({shape.m, shape.n, 4})));
  return product;
}

Subject MatrixProduct::MakeSubject(const PointContext& context) {
  const auto self = shared_from_this();
  const auto [m, n, k] = shape_;
  return Subject{.kernel = absl::StrCat("gemm[", kernels::Name(type_), ",m=", m, ",n=", n, ",k=", k, "]"),
                 .data_type = type_,
                 .flops = 2 * m * n * k,
                 .bytes = (m * k + n * k) * kernels::ElementBytes(type_) + m * n * 4,
                 .queue =
                     [self](device::Lane& lane) {
                       const auto [rows, columns, steps] = self->shape_;
                       return lane.Gemm(self->type_, rows, columns, steps, self->a_, self->b_, self->c_);
                     },
                 .check = [self, &lane = context.lane] { return self->Check(lane); }};
}

absl::StatusOr<std::vector<double>> MatrixProduct::Read(device::Lane& lane, const Buffer& buffer, std::int64_t elements) const {
  RIDGELINE_ASSIGN_OR_RETURN(const auto host, measure::ReadBack(lane, buffer, elements * kernels::ElementBytes(type_)));
  std::vector<float> floats(elements);
  kernels::ConvertToFloat32(type_, host->data(), elements, floats.data());
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
      const double tolerance = kEpsilon * magnitude * static_cast<double>(shape_.k + 2) / 2;
      RIDGELINE_RETURN_IF_ERROR(ExpectNear("an element of the product", c[i * shape_.n + j], want, tolerance));
    }
  }
  return absl::OkStatus();
}

}  // namespace ridgeline::engine::benchmark
