// A product of random matrices, as several benchmarks measure it: by the device's best kernel, Lane::Gemm, or of a type that it
// lacks by CUDA's kernel for all types of the matrix unit.
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

struct ProductType {
  kernels::DataType data_type;     // of A and B: float32, float16 or bfloat16; by the matrix unit also an 8-bit float
  bool is_by_matrix_unit = false;  // CUDA: by mma.sync, which reads 19 bits of float32 (TF32). Else by Lane::Gemm
};

struct Deviations {
  float a = 1, b = 1;  // of the elements
};

// C[m,n] = A[m,k] · B[n,k]ᵀ, float32 accumulation and result. A and B are normal with mean 0, rounded to the type.
class MatrixProduct : public std::enable_shared_from_this<MatrixProduct> {
 public:
  static absl::StatusOr<std::shared_ptr<MatrixProduct>> Create(const PointContext& context, ProductType type,
                                                               ProductShape shape, Deviations deviations = {});

  // Checked against double precision at some elements of C, spread over it; the subject keeps the product alive.
  Subject MakeSubject(const PointContext& context);

  // The inputs as the device has them, in double; and C after a run.
  absl::StatusOr<std::vector<double>> ReadA(device::Lane& lane) const;
  absl::StatusOr<std::vector<double>> ReadB(device::Lane& lane) const;
  absl::StatusOr<std::vector<float>> ReadC(device::Lane& lane) const;

  const ProductShape& shape() const { return shape_; }

 private:
  MatrixProduct(ProductType type, ProductShape shape) : type_(type), shape_(shape) {}
  absl::StatusOr<device::Buffer> Fill(const PointContext& context, std::int64_t rows, std::uint64_t stream, float deviation);
  absl::Status Queue(device::Lane& lane);
  absl::Status Check(device::Lane& lane) const;
  absl::StatusOr<std::vector<double>> Read(device::Lane& lane, const device::Buffer& buffer, std::int64_t elements) const;

  const ProductType type_;
  const ProductShape shape_;
  device::Buffer a_, b_, c_;
};

}  // namespace ridgeline::engine::benchmark
