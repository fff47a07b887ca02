// The benchmarks' kernels on the CPU, at sizes that no vector length divides, against plain loops.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/microbench/microbench.h"
#include "kernels/microbench/workload.h"
#include "tests/support/thread_executor.h"

namespace ridgeline::kernels::microbench {
namespace {

using ::testing::Each;

constexpr float kUntouched = -7;

class MicrobenchTest : public ::testing::Test {
 protected:
  static std::vector<float> Random(std::int64_t elements, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(elements);
    for (float& value : values) value = normal(random);
    return values;
  }
  static double Sum(const std::vector<float>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

  support::ThreadExecutor executor_{3};
};

TEST_F(MicrobenchTest, StreamsReachEveryElementAndNoneBeyond) {
  for (const std::int64_t elements : {0, 1, 15, 16, 17, 63, 64, 65, 1000, 4099}) {
    SCOPED_TRACE(elements);
    const std::vector<float> a = Random(elements, 1), b = Random(elements, 2);
    std::vector<float> to(elements + 1, kUntouched), sums(3, kUntouched);
    StreamParams params{.operation = StreamOperation::kRead,
                        .a = a.data(),
                        .b = b.data(),
                        .destination = to.data(),
                        .scale = 0.5f,
                        .elements = elements,
                        .passes = 3,
                        .slice_sums = sums.data()};
    RunWorkloadOnCpu(Workload(params), executor_);
    EXPECT_NEAR(Sum(sums), Sum(a), 1e-4 * (1 + std::sqrt(static_cast<double>(elements)))) << "of one pass, not of three";
    EXPECT_THAT(to, Each(kUntouched));
    for (const StreamOperation operation : {StreamOperation::kWrite, StreamOperation::kCopy, StreamOperation::kTriad}) {
      std::fill(to.begin(), to.end(), kUntouched);
      params.operation = operation;
      RunWorkloadOnCpu(Workload(params), executor_);
      for (std::int64_t i = 0; i < elements; ++i) {
        const float want = operation == StreamOperation::kWrite  ? 0.5f
                           : operation == StreamOperation::kCopy ? a[i]
                                                                 : std::fma(0.5f, b[i], a[i]);
        ASSERT_NEAR(to[i], want, 1e-6) << i;
      }
      EXPECT_EQ(to[elements], kUntouched);
    }
  }
}

TEST_F(MicrobenchTest, AChainGoesOnWhereItEnded) {
  const std::vector<std::int64_t> next = {3, 0, 1, 2};
  constexpr std::int64_t kNodeBytes = 48;
  std::vector<std::int64_t> nodes(4 * kNodeBytes / 8, -1);
  const auto* const begin = reinterpret_cast<const char*>(nodes.data());
  void* cursor = nullptr;
  RunWorkloadOnCpu(
      Workload(
          LinkParams{.next = next.data(), .nodes = nodes.data(), .cursor = &cursor, .num_nodes = 4, .node_bytes = kNodeBytes}),
      executor_);
  EXPECT_EQ(cursor, begin);
  EXPECT_EQ(nodes[1], -1) << "the rest of a node stays";
  RunWorkloadOnCpu(Workload(ChaseParams{.cursor = &cursor, .steps = 5}), executor_);
  EXPECT_EQ(cursor, begin + 3 * kNodeBytes);
  RunWorkloadOnCpu(Workload(ChaseParams{.cursor = &cursor, .steps = 2}), executor_);
  EXPECT_EQ(cursor, begin + kNodeBytes);
}

TEST_F(MicrobenchTest, ChainsOfMultiplyAddsAreThatToTheLastBit) {
  for (const int chains : kFmaChains) {
    std::vector<double> results(5, kUntouched);
    const FmaParams params{
        .type = FmaType::kFloat32, .chains = chains, .iterations = 1000, .tasks = 5, .results = results.data()};
    RunWorkloadOnCpu(Workload(params), executor_);
    double want = 0;
    for (int c = 0; c < chains; ++c) {
      float x = static_cast<float>(c + 1);
      for (int i = 0; i < 1000; ++i) x = std::fma(x, static_cast<float>(kFmaFactor), static_cast<float>(kFmaAddend));
      want += x;
    }
    // Targets without fused multiply-adds round twice.
    EXPECT_THAT(results, Each(::testing::DoubleNear(want, 1e-4 * want))) << chains;
    EXPECT_EQ(FmaTaskFlopsOnCpu(params) % (2 * chains * 1000), 0);
  }
}

TEST_F(MicrobenchTest, IntensityComputesWhatItSaysAtEveryJoin) {
  const std::int64_t elements = 7 * kIntensityGranule;
  const std::vector<float> source = Random(elements, 3);
  for (const int join : {1, 2, 4}) {
    for (const std::int64_t multiply_adds : {0, 1, 5}) {
      std::vector<float> sums(3, kUntouched);
      const IntensityParams params{.source = source.data(),
                                   .elements = elements,
                                   .join = join,
                                   .multiply_adds = multiply_adds,
                                   .adds_only = false,
                                   .slice_sums = sums.data()};
      RunWorkloadOnCpu(Workload(params), executor_);
      const std::int64_t span = kIntensityGranule / join;
      double want = 0;
      for (std::int64_t granule = 0; granule < elements; granule += kIntensityGranule) {
        for (std::int64_t i = 0; i < span; ++i) {
          float m = source[granule + i];
          for (int j = 1; j < join; ++j) m = std::max(m, source[granule + i + j * span]);
          double y = m;
          for (std::int64_t step = 0; step < multiply_adds; ++step) y = 0.5 * y + m;
          want += kIntensityWeight * y;
        }
      }
      EXPECT_NEAR(Sum(sums), want, 1e-2) << join << " " << multiply_adds;
    }
  }
}

TEST_F(MicrobenchTest, StridesUseTheirElementsAlone) {
  for (const std::int64_t stride : {1, 3, 16}) {
    std::vector<float> source(stride * 101, std::nanf(""));
    double want = 0;
    for (int i = 0; i < 101; ++i) want += source[i * stride] = static_cast<float>(i);
    std::vector<float> sums(3);
    RunWorkloadOnCpu(
        Workload(StridedParams{.source = source.data(), .count = 101, .stride = stride, .slice_sums = sums.data()}), executor_);
    EXPECT_EQ(Sum(sums), want) << stride;
  }
}

TEST_F(MicrobenchTest, CopiesOfVectorsAreWholeAtAnyOffset) {
  for (const std::int64_t elements : {0, 1, 16, 63, 1000}) {
    const std::vector<float> from = Random(elements + 3, 4);
    std::vector<float> to(elements + 4, kUntouched);
    RunWorkloadOnCpu(
        Workload(VectorCopyParams{.source = from.data() + 3, .destination = to.data() + 3, .elements = elements, .passes = 2}),
        executor_);
    EXPECT_TRUE(std::equal(from.begin() + 3, from.end(), to.begin() + 3)) << elements;
    EXPECT_EQ(to.back(), kUntouched);
  }
}

TEST_F(MicrobenchTest, TransposesLeavePaddingAlone) {
  for (const TransposeMethod method : {TransposeMethod::kRows, TransposeMethod::kTiles}) {
    for (const std::int64_t size : {1, 15, 16, 17, 64, 65, 129}) {
      const std::int64_t from_stride = size + 2, to_stride = size + 5;
      const std::vector<float> from = Random(size * from_stride, 5);
      std::vector<float> to(size * to_stride, kUntouched);
      RunWorkloadOnCpu(Workload(TransposeParams{.method = method,
                                                .source = from.data(),
                                                .destination = to.data(),
                                                .size = size,
                                                .source_stride = from_stride,
                                                .destination_stride = to_stride}),
                       executor_);
      for (std::int64_t i = 0; i < size; ++i) {
        for (std::int64_t j = 0; j < to_stride; ++j) {
          ASSERT_EQ(to[i * to_stride + j], j < size ? from[j * from_stride + i] : kUntouched) << size << " " << i << " " << j;
        }
      }
    }
  }
}

TEST_F(MicrobenchTest, SoftmaxIsTheSameInAllPasses) {
  const std::int64_t rows = 5, columns = 3 * kSoftmaxGranule;
  std::vector<float> input = Random(rows * columns, 6);
  input[7] = 80;  // a maximum that comes late rescales what was summed
  input[columns - 1] = 90;
  for (const SoftmaxPasses passes : {SoftmaxPasses::kThree, SoftmaxPasses::kTwo, SoftmaxPasses::kOne}) {
    std::vector<float> output(rows * columns, kUntouched), scratch(3 * columns);
    RunWorkloadOnCpu(Workload(SoftmaxPassesParams{.passes = passes,
                                                  .input = input.data(),
                                                  .output = output.data(),
                                                  .rows = rows,
                                                  .columns = columns,
                                                  .scratch = scratch.data()}),
                     executor_);
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* const x = input.data() + row * columns;
      const double maximum = *std::max_element(x, x + columns);
      double sum = 0;
      for (std::int64_t c = 0; c < columns; ++c) sum += std::exp(x[c] - maximum);
      for (std::int64_t c = 0; c < columns; ++c) {
        const double want = std::exp(x[c] - maximum) / sum;
        ASSERT_NEAR(output[row * columns + c], want, 1e-6 * want + 1e-30) << row << " " << c;
      }
    }
  }
}

TEST_F(MicrobenchTest, EveryRungOfTheLadderIsAProduct) {
  const std::int64_t m = 37, n = 53, k = 29;
  const std::vector<float> a = Random(m * k, 7), b = Random(k * n, 8);
  std::vector<float> b_transposed(n * k);
  for (std::int64_t i = 0; i < k; ++i) {
    for (std::int64_t j = 0; j < n; ++j) b_transposed[j * k + i] = b[i * n + j];
  }
  std::vector<float> workspace(GemmWorkspaceBytesOnCpu(DataType::kFloat32, m, n, k, executor_.num_slots()) / 4);
  for (const GemmRung rung :
       {GemmRung::kNaive, GemmRung::kReordered, GemmRung::kBlocked, GemmRung::kTiled, GemmRung::kLibrary}) {
    std::vector<float> c(m * n, kUntouched);
    RunWorkloadOnCpu(Workload(GemmRungParams{.rung = rung,
                                             .m = m,
                                             .n = n,
                                             .k = k,
                                             .a = a.data(),
                                             .b = b.data(),
                                             .b_transposed = b_transposed.data(),
                                             .c = c.data(),
                                             .workspace = workspace.data()}),
                     executor_);
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double want = 0;
        for (std::int64_t s = 0; s < k; ++s) want += static_cast<double>(a[i * k + s]) * b[s * n + j];
        ASSERT_NEAR(c[i * n + j], want, 1e-5) << static_cast<int>(rung) << " " << i << " " << j;
      }
    }
  }
}

}  // namespace
}  // namespace ridgeline::kernels::microbench
