// The matrix product whose rate is the CPU device's roof, against plain loops in double.
#include <cmath>
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "kernels/common/data_type.h"
#include "kernels/microbench/microbench.h"
#include "tests/reference/attention_reference.h"
#include "tests/support/attention_case.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/thread_executor.h"

namespace ridgeline::kernels::microbench {
namespace {

constexpr double kUnitRoundoff = 0x1p-24;  // of float32

class GemmTest : public ::testing::TestWithParam<DataType> {
 protected:
  void ExpectRight(std::int64_t m, std::int64_t n, std::int64_t k) {
    support::TestTensor a(GetParam(), m * k), b(GetParam(), n * k), c(DataType::kFloat32, m * n);
    a.FillNormal(support::DeriveSeed("gemm a", m * n * k));
    b.FillNormal(support::DeriveSeed("gemm b", m * n * k));
    const std::int64_t bytes = GemmWorkspaceBytesOnCpu(GetParam(), m, n, k, executor_.num_slots());
    support::GuardedBuffer workspace(bytes);
    GemmOnCpu(GetParam(), m, n, k, a.bytes().data(), b.bytes().data(), reinterpret_cast<float*>(c.bytes().data()),
              workspace.data(), executor_);
    EXPECT_TRUE(c.buffer().guards_whole());
    EXPECT_TRUE(workspace.guards_whole());

    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double want = 0, magnitudes = 0;
        for (std::int64_t step = 0; step < k; ++step) {
          const double product = a.Get(i * k + step) * b.Get(j * k + step);
          want += product;
          magnitudes += std::abs(product);
        }
        const double got = c.Get(i * n + j);
        ASSERT_TRUE(std::abs(got - want) <= static_cast<double>(k + 1) * kUnitRoundoff * magnitudes)
            << "m " << m << " n " << n << " k " << k << " row " << i << " column " << j << ": got " << got << ", want " << want;
      }
    }
  }

  support::ThreadExecutor executor_{3};
};

INSTANTIATE_TEST_SUITE_P(Types, GemmTest, ::testing::Values(DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16),
                         [](const auto& type) { return std::string(Name(type.param)); });

TEST_P(GemmTest, AroundTheEdgesOfTiles) {
  for (const std::int64_t m : {1, 7, 8, 9}) {
    for (const std::int64_t n : {1, 15, 17, 47, 48, 49}) {
      for (const std::int64_t k : {1, 8, 17}) ExpectRight(m, n, k);
    }
  }
}

TEST_P(GemmTest, AroundTheEdgesOfBlocks) {
  ExpectRight(385, 3, 5);
  ExpectRight(3, 481, 5);
  for (const std::int64_t k : {255, 256, 257, 600}) ExpectRight(9, 49, k);
}

TEST_P(GemmTest, EmptyProducts) {
  ExpectRight(0, 5, 7);
  ExpectRight(5, 0, 7);
  ExpectRight(5, 7, 0);  // of no terms: zeros
}

}  // namespace
}  // namespace ridgeline::kernels::microbench
