// Copies, random tensors and matrix products on the GPU.
#include "kernels/microbench/microbench_cuda.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/common/data_type.h"
#include "kernels/microbench/microbench.h"
#include "kernels/microbench/philox.h"
#include "tests/gpu/gpu.h"
#include "tests/support/attention_case.h"
#include "tests/support/thread_executor.h"

namespace ridgeline::kernels::microbench {
namespace {

using gpu::GuardedDeviceArray;
using support::TestTensor;

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16};
constexpr std::uint64_t kSeed = 0x123456789abcdef0u;
constexpr std::int64_t kBeyondInt = (std::int64_t{1} << 31) + 5;

double UnitRoundoff(DataType type) {
  return type == DataType::kFloat32 ? 0x1p-24 : type == DataType::kFloat16 ? 0x1p-11 : 0x1p-8;
}

template <typename Base>
class OnGpu : public Base {
 protected:
  void SetUp() override {
    const std::string why_no_gpu = gpu::WhyNoGpu();
    if (!why_no_gpu.empty()) GTEST_SKIP() << why_no_gpu;
  }
};

class CopyCudaTest : public OnGpu<::testing::Test> {};

class FillNormalCudaTest : public OnGpu<::testing::TestWithParam<DataType>> {};

INSTANTIATE_TEST_SUITE_P(Types, FillNormalCudaTest, ::testing::ValuesIn(kTypes),
                         [](const auto& type) { return std::string(Name(type.param)); });

// Every alignment of both sides that makes a difference, at sizes around words, blocks, and of many blocks.
TEST_F(CopyCudaTest, CopiesEveryByteAndNoMore) {
  constexpr std::int64_t kBlock = 16 << 10;
  constexpr std::int64_t kMargin = 32;
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, std::int64_t{15}, std::int64_t{16}, std::int64_t{47},
                                   kBlock - 1, kBlock, kBlock + 17, 50 * kBlock + 1234}) {
    std::vector<std::uint8_t> source(bytes + kMargin);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::uint8_t>(i * 2654435761u >> 24);
    GuardedDeviceArray from(bytes + kMargin);
    from.Upload(source.data());
    for (const std::int64_t from_offset : {0, 1, 4, 15}) {
      for (const std::int64_t to_offset : {0, 1, 4, 8, 19}) {
        std::vector<std::uint8_t> want(bytes + kMargin, 0xa5);
        GuardedDeviceArray to(bytes + kMargin);
        to.Upload(want.data());
        gpu::Check(LaunchCopy(to.data() + to_offset, from.data() + from_offset, bytes, gpu::Stream()), "LaunchCopy");
        std::copy_n(source.begin() + from_offset, bytes, want.begin() + to_offset);
        ASSERT_TRUE(to.Holds(want.data())) << bytes << " bytes from " << from_offset << " to " << to_offset;
        ASSERT_TRUE(to.guards_whole());
      }
    }
  }
}

// What FillNormalOnCpu promises, in double.
double ExpectedNormal(std::uint64_t seed, std::int64_t idx) {
  const PhiloxCounter bits = Philox4x32({static_cast<std::uint32_t>(idx / 4), static_cast<std::uint32_t>(idx / 4 >> 32), 0, 0},
                                        {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::int64_t pair = idx % 4 / 2;
  const double radius = std::sqrt(-2 * std::log((bits[2 * pair] + 0.5) * 0x1p-32));
  const double angle = 2 * std::numbers::pi * (bits[2 * pair + 1] + 0.5) * 0x1p-32;
  return radius * (idx % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

// From an array's first element on, which aligns whole vectors, and from its second.
TEST_P(FillNormalCudaTest, FillsWithTheNormalsOfTheCpu) {
  constexpr float kMean = 0.5f, kDeviation = 3;
  support::ThreadExecutor executor(2);
  for (const std::int64_t elements : {0, 1, 3, 4, 5, 1023, 1024, 1025, 200'003}) {
    TestTensor want(GetParam(), elements);
    FillNormalOnCpu(GetParam(), elements, kSeed, kMean, kDeviation, want.bytes().data(), executor);
    for (const std::int64_t begin : {0, 1}) {
      TestTensor got(GetParam(), begin + elements);
      GuardedDeviceArray filled(static_cast<std::int64_t>(got.bytes().size()));
      std::byte* const destination = filled.data() + begin * ElementBytes(GetParam());
      gpu::Check(LaunchFillNormal(GetParam(), elements, kSeed, kMean, kDeviation, destination, gpu::Stream()), "LaunchFill");
      ASSERT_TRUE(filled.guards_whole()) << elements;
      filled.Download(got.bytes().data());
      for (std::int64_t i = 0; i < elements; ++i) {
        // Either side is within 5e-6 deviations of the exact normal, and may round to the other side of a tie.
        const double bound = 1e-5 * kDeviation + 2 * UnitRoundoff(GetParam()) * std::abs(want.Get(i));
        ASSERT_NEAR(got.Get(begin + i), want.Get(i), bound) << i << " of " << elements << " from " << begin;
      }
    }
  }
}

TEST_F(CopyCudaTest, FillsAndCopiesBeyond2To31Elements) {
  constexpr std::int64_t kBytes = kBeyondInt * 2;
  if (gpu::FreeMemoryBytes() < 3 * kBytes) GTEST_SKIP() << "needs " << 3 * kBytes << " bytes of free device memory";
  GuardedDeviceArray filled(kBytes), copied(kBytes);
  gpu::Check(LaunchFillNormal(DataType::kFloat16, kBeyondInt, kSeed, 0, 1, filled.data(), gpu::Stream()), "LaunchFillNormal");
  gpu::Check(LaunchCopy(copied.data(), filled.data(), kBytes, gpu::Stream()), "LaunchCopy");
  EXPECT_TRUE(filled.guards_whole());
  EXPECT_TRUE(copied.guards_whole());
  constexpr std::int64_t kLast = 1001;
  TestTensor last(DataType::kFloat16, kLast);
  gpu::Check(cudaMemcpyAsync(last.bytes().data(), copied.data() + kBytes - 2 * kLast, 2 * kLast, cudaMemcpyDeviceToHost,
                             gpu::Stream()),
             "download");
  gpu::Check(cudaStreamSynchronize(gpu::Stream()), "cudaStreamSynchronize");
  for (std::int64_t i = 0; i < kLast; ++i) {
    const double want = ExpectedNormal(kSeed, kBeyondInt - kLast + i);
    ASSERT_NEAR(last.Get(i), want, 1e-5 + 0x1p-11 * std::abs(want)) << i;
  }
}

class GemmCudaTest : public OnGpu<::testing::TestWithParam<DataType>> {
 protected:
  void ExpectRight(std::int64_t m, std::int64_t n, std::int64_t k) {
    TestTensor a(GetParam(), m * k), b(GetParam(), n * k), c(DataType::kFloat32, m * n);
    a.FillNormal(support::DeriveSeed("gemm a", m * n * k));
    b.FillNormal(support::DeriveSeed("gemm b", m * n * k));
    GuardedDeviceArray device_a(static_cast<std::int64_t>(a.bytes().size()));
    GuardedDeviceArray device_b(static_cast<std::int64_t>(b.bytes().size()));
    GuardedDeviceArray device_c(static_cast<std::int64_t>(c.bytes().size()));
    device_a.Upload(a.bytes().data());
    device_b.Upload(b.bytes().data());
    gpu::Check(LaunchGemm(GetParam(), m, n, k, device_a.data(), device_b.data(), reinterpret_cast<float*>(device_c.data()),
                          gpu::Cublas()),
               "LaunchGemm");
    device_c.Download(c.bytes().data());
    EXPECT_TRUE(device_c.guards_whole());
    // Tensor cores cut off where others round: twice the error. TF32 would err two thousand times as much as float32.
    const double roundoff = GetParam() == DataType::kFloat32 ? 0x1p-24 : 0x1p-23;
    for (std::int64_t i = 0; i < m * n; ++i) {
      double want = 0, magnitudes = 0;
      for (std::int64_t step = 0; step < k; ++step) {
        const double product = a.Get(i / n * k + step) * b.Get(i % n * k + step);
        want += product;
        magnitudes += std::abs(product);
      }
      const double got = c.Get(i);
      ASSERT_TRUE(std::abs(got - want) <= static_cast<double>(k + 1) * roundoff * magnitudes)
          << "m " << m << " n " << n << " k " << k << " element " << i << ": got " << got << ", want " << want;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Types, GemmCudaTest, ::testing::ValuesIn(kTypes),
                         [](const auto& type) { return std::string(Name(type.param)); });

TEST_P(GemmCudaTest, MatchesPlainLoops) {
  for (const std::int64_t m : {1, 7, 128, 257}) {
    for (const std::int64_t n : {1, 15, 130}) {
      for (const std::int64_t k : {1, 8, 33, 64}) ExpectRight(m, n, k);
    }
  }
}

TEST_P(GemmCudaTest, EmptyProducts) {
  ExpectRight(0, 5, 7);
  ExpectRight(5, 0, 7);
}

}  // namespace
}  // namespace ridgeline::kernels::microbench
