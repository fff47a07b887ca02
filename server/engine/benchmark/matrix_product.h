// A product of random matrices by the device's best kernel, Lane::Gemm, as several benchmarks measure it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/common/data_type.h"
#include "server/device/buffer.h"
#include "server/engine/benchmark/subject.h"

namespace ridgeline::engine::benchmark {

// "float32", "float16", "bfloat16".
kernels::DataType TypeOf(const std::string& name);

struct ProductShape {
  std::int64_t m, n, k;
};

// C[m,n] = A[m,k] · B[n,k]ᵀ, float32 accumulation and result. A and B are normal with mean 0, rounded to the type.
class MatrixProduct : public std::enable_shared_from_this<MatrixProduct> {
 public:
  static absl::StatusOr<std::shared_ptr<MatrixProduct>> Create(const PointContext& context, kernels::DataType type,
                                                               ProductShape shape, float standard_deviation = 1);

  // Checked against double precision at some elements of C, spread over it; the subject keeps the product alive.
  Subject MakeSubject(const PointContext& context);

  // The inputs as the device has them, in double; and C after a run.
  absl::StatusOr<std::vector<double>> ReadA(device::Lane& lane) const;
  absl::StatusOr<std::vector<double>> ReadB(device::Lane& lane) const;
  absl::StatusOr<std::vector<float>> ReadC(device::Lane& lane) const;

  const ProductShape& shape() const { return shape_; }

 private:
  MatrixProduct(kernels::DataType type, ProductShape shape) : type_(type), shape_(shape) {}
  absl::Status Check(device::Lane& lane) const;
  absl::StatusOr<std::vector<double>> Read(device::Lane& lane, const device::Buffer& buffer, std::int64_t elements) const;

  const kernels::DataType type_;
  const ProductShape shape_;
  device::Buffer a_, b_, c_;
};

}  // namespace ridgeline::engine::benchmark
