// What a backward pass is made of, on every device: products with either operand transposed, and the gradients of gelu and
// layer norm, against plain loops in double.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/microbench/mlp_backward.h"
#include "kernels/microbench/product.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/device/device_under_test.h"
#include "tests/unit/device/lane_io.h"

namespace ridgeline::device {
namespace {

using kernels::microbench::GeluBackwardParams;
using kernels::microbench::kLayerNormPartials;
using kernels::microbench::LayerNormBackwardParams;
using kernels::microbench::ProductParams;
using Floats = std::vector<float>;

class TrainingKernelsTest : public DeviceTest {
 protected:
  static Floats Random(std::int64_t count, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    Floats values(count);
    std::generate(values.begin(), values.end(), [&] { return normal(random); });
    return values;
  }

  Buffer Upload(const Floats& values) { return device::Upload(device_->lane(0), values); }
  Floats Download(Buffer buffer) { return device::Download(device_->lane(0), std::move(buffer)); }

  static float* Pointer(const Buffer& buffer) { return static_cast<float*>(buffer.data()); }
};

TEST_F(TrainingKernelsTest, ProductsOfEitherOperandTransposed) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1}, {3, 5, 7}, {129, 513, 33}, {200, 64, 130}}) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        SCOPED_TRACE(testing::Message() << m << " " << n << " " << k << " " << transpose_a << transpose_b);
        const Floats a = Random(m * k, 1), b = Random(k * n, 2);
        const Buffer on_device_a = Upload(a), on_device_b = Upload(b);
        Buffer c = Upload(Floats(m * n, std::nanf("")));
        ASSERT_OK(device_->lane(0).Run(ProductParams{.type = kernels::DataType::kFloat32,
                                                     .transpose_a = transpose_a,
                                                     .transpose_b = transpose_b,
                                                     .m = m,
                                                     .n = n,
                                                     .k = k,
                                                     .a = on_device_a.data(),
                                                     .b = on_device_b.data(),
                                                     .c = c.data()}));
        const Floats got = Download(std::move(c));
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < n; ++j) {
            double want = 0, magnitude = 0;
            for (std::int64_t l = 0; l < k; ++l) {
              const double term = double{a[transpose_a ? l * m + i : i * k + l]} * b[transpose_b ? j * k + l : l * n + j];
              want += term;
              magnitude += std::abs(term);
            }
            ASSERT_NEAR(got[i * n + j], want, 0x1p-23 * static_cast<double>(k + 2) * magnitude) << i << ", " << j;
          }
        }
      }
    }
  }
}

TEST_F(TrainingKernelsTest, GeluBackwardIsItsDerivative) {
  Floats x = Random(1003, 3);
  for (float& value : x) value *= 3;
  x[0] = 0;
  x[1] = -20;
  x[2] = 20;
  const Floats dy = Random(1003, 4);
  const Buffer input = Upload(x);
  Buffer gradient = Upload(dy);
  ASSERT_OK(device_->lane(0).Run(GeluBackwardParams{
      .input = Pointer(input), .output_gradient = Pointer(gradient), .input_gradient = Pointer(gradient), .elements = 1003}));
  const Floats got = Download(std::move(gradient));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double distribution = 0.5 * std::erfc(-x[i] / std::numbers::sqrt2);
    const double density = std::exp(-double{x[i]} * x[i] / 2) / std::sqrt(2 * std::numbers::pi);
    EXPECT_NEAR(got[i], dy[i] * (distribution + x[i] * density), 2e-6 * std::abs(dy[i])) << x[i];
  }
}

TEST_F(TrainingKernelsTest, LayerNormBackwardIsItsDerivative) {
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 8}, {3, 129}, {700, 260}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns);
    constexpr float kEpsilon = 1e-5f;
    const Floats x = Random(rows * columns, 5), dy = Random(rows * columns, 6), weight = Random(columns, 7);
    const Buffer input = Upload(x), weights = Upload(weight), output_gradient = Upload(dy);
    const Buffer workspace = *device_->lane(0).Allocate(2 * kLayerNormPartials * columns * 4);
    Buffer dx = Upload(Floats(rows * columns, std::nanf(""))), dw = Upload(Floats(columns, std::nanf("")));
    Buffer db = Upload(Floats(columns, std::nanf("")));
    ASSERT_OK(device_->lane(0).Run(LayerNormBackwardParams{.input = Pointer(input),
                                                           .weight = Pointer(weights),
                                                           .output_gradient = Pointer(output_gradient),
                                                           .input_gradient = Pointer(dx),
                                                           .weight_gradient = Pointer(dw),
                                                           .bias_gradient = Pointer(db),
                                                           .workspace = Pointer(workspace),
                                                           .rows = rows,
                                                           .columns = columns,
                                                           .epsilon = kEpsilon}));
    const Floats got_dx = Download(std::move(dx)), got_dw = Download(std::move(dw)), got_db = Download(std::move(db));
    std::vector<double> want_dw(columns), want_db(columns);
    const auto n = static_cast<double>(columns);
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* const row_x = x.data() + row * columns;
      const float* const row_dy = dy.data() + row * columns;
      double mean = 0, variance = 0, mean_gradient = 0, mean_product = 0;
      for (std::int64_t i = 0; i < columns; ++i) mean += row_x[i] / n;
      for (std::int64_t i = 0; i < columns; ++i) variance += (row_x[i] - mean) * (row_x[i] - mean) / n;
      const double factor = 1 / std::sqrt(variance + kEpsilon);
      for (std::int64_t i = 0; i < columns; ++i) {
        const double normal = (row_x[i] - mean) * factor;
        want_dw[i] += row_dy[i] * normal;
        want_db[i] += row_dy[i];
        mean_gradient += double{row_dy[i]} * weight[i] / n;
        mean_product += double{row_dy[i]} * weight[i] * normal / n;
      }
      for (std::int64_t i = 0; i < columns; ++i) {
        const double normal = (row_x[i] - mean) * factor;
        ASSERT_NEAR(got_dx[row * columns + i], factor * (double{row_dy[i]} * weight[i] - mean_gradient - normal * mean_product),
                    1e-4)
            << row << ", " << i;
      }
    }
    for (std::int64_t i = 0; i < columns; ++i) {
      EXPECT_NEAR(got_dw[i], want_dw[i], 1e-5 * static_cast<double>(rows)) << i;
      EXPECT_NEAR(got_db[i], want_db[i], 1e-5 * static_cast<double>(rows)) << i;
    }
  }
}

}  // namespace
}  // namespace ridgeline::device
