// Kernels that show effects of a GPU: divergent paths, and the warps that are resident.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/microbench/divergence.h"
#include "kernels/microbench/occupancy.h"
#include "kernels/microbench/workload_cuda.h"
#include "tests/gpu/gpu.h"

namespace ridgeline::kernels::microbench {
namespace {

using gpu::GuardedDeviceArray;

constexpr std::int64_t kLanes = 32;

class EffectsCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why_no_gpu = gpu::WhyNoGpu();
    if (!why_no_gpu.empty()) GTEST_SKIP() << why_no_gpu;
  }

  static void Launch(const Workload& workload) {
    const CudaSite site = {.num_sms = NumSms(),
                           .compute_capability = gpu::Limits().compute_capability,
                           .cublas = gpu::Cublas(),
                           .stream = gpu::Stream()};
    ASSERT_TRUE(RunsOnCuda(workload));
    const CudaStatus status = LaunchWorkload(workload, site);
    ASSERT_TRUE(status.ok()) << gpu::Describe(status);
  }
  static int NumSms() { return gpu::Limits().num_sms; }

  static std::vector<float> Floats(const GuardedDeviceArray& array) {
    std::vector<float> floats(array.size_bytes() / sizeof(float));
    array.Download(floats.data());
    return floats;
  }
};

TEST_F(EffectsCudaTest, EveryThreadRunsItsPath) {
  for (const int paths : {1, 2, 7, 32}) {
    for (const bool aligned : {false, true}) {
      SCOPED_TRACE(testing::Message() << paths << " paths, aligned " << aligned);
      constexpr std::int64_t kWarps = 5 * kDivergenceBlockWarps;
      GuardedDeviceArray results(kWarps * kLanes * sizeof(float));
      Launch(DivergenceParams{.aligned_to_warps = aligned,
                              .paths = paths,
                              .iterations = 37,
                              .num_warps = kWarps,
                              .results = reinterpret_cast<float*>(results.data())});
      const std::vector<float> got = Floats(results);
      for (std::size_t thread = 0; thread < got.size(); ++thread) {
        const std::size_t chooser = aligned ? thread / kLanes : thread;
        float want = 1;
        for (int i = 0; i < 37; ++i) want = std::fma(want, kPathFactor, PathAddend(static_cast<int>(chooser % paths)));
        ASSERT_EQ(got[thread], want) << thread;
      }
      EXPECT_TRUE(results.guards_whole());
    }
  }
}

class OccupancyCudaTest : public EffectsCudaTest {
 protected:
  // As many warps as fill every multiprocessor twice, and some.
  static OccupancyParams ParamsFor(OccupancyWork work, OccupancyLimit limit, int warps, int independent) {
    OccupancyParams params{};
    params.work = work;
    params.limit = limit;
    params.warps = warps;
    params.independent = independent;
    params.num_warps = limit == OccupancyLimit::kGrid ? std::int64_t{NumSms()} * warps : NumSms() * 128 + 1;
    params.steps = work == OccupancyWork::kLoads ? 8 : 4096;
    return params;
  }

  // Runs it, and says how many warps were resident at most.
  static int Run(OccupancyParams params) {
    std::vector<float> source(params.work == OccupancyWork::kLoads ? params.num_warps * params.steps * kLanes * 4 : 1);
    for (std::size_t i = 0; i < source.size(); ++i)
      source[i] = static_cast<float>(static_cast<std::uint32_t>(i) * 2654435761u >> 27) - 16;
    GuardedDeviceArray device_source(source.size() * sizeof(float)), sums(params.num_warps * kLanes * sizeof(float));
    GuardedDeviceArray resident(2 * kMostMultiprocessors * sizeof(std::int32_t));
    std::vector<std::int32_t> counts(2 * kMostMultiprocessors, 0);
    device_source.Upload(source.data());
    resident.Upload(counts.data());
    params.source = reinterpret_cast<const float*>(device_source.data());
    params.sums = reinterpret_cast<float*>(sums.data());
    params.resident = reinterpret_cast<std::int32_t*>(resident.data());
    Launch(params);
    ExpectSums(params, source, Floats(sums));
    EXPECT_TRUE(sums.guards_whole());
    resident.Download(counts.data());
    EXPECT_TRUE(std::all_of(counts.begin(), counts.begin() + kMostMultiprocessors, [](int now) { return now == 0; }));
    // In the middle: a block may still count one that has just gone.
    counts.erase(counts.begin(), counts.begin() + kMostMultiprocessors);
    counts.erase(std::remove(counts.begin(), counts.end(), 0), counts.end());
    std::sort(counts.begin(), counts.end());
    return counts.empty() ? 0 : counts[counts.size() / 2];
  }

  static void ExpectSums(const OccupancyParams& params, const std::vector<float>& source, const std::vector<float>& sums) {
    for (std::int64_t thread = 0; thread < static_cast<std::int64_t>(sums.size()); ++thread) {
      ASSERT_EQ(sums[thread], params.work == OccupancyWork::kLoads ? SumOf(params, source, thread) : EndOf(params)) << thread;
    }
  }
  // Small integers: exact.
  static float SumOf(const OccupancyParams& params, const std::vector<float>& source, std::int64_t thread) {
    float sum = 0;
    for (std::int64_t step = 0; step < params.steps; ++step) {
      const std::int64_t at = ((thread / kLanes * params.steps + step) * kLanes + thread % kLanes) * 4;
      for (int i = 0; i < 4; ++i) sum += source[at + i];
    }
    return sum;
  }
  static float EndOf(const OccupancyParams& params) {
    float sum = 0;
    for (int chain = 0; chain < params.independent; ++chain) {
      float x = static_cast<float>(chain + 1);
      for (std::int64_t step = 0; step < params.steps / params.independent; ++step) {
        x = std::fma(x, kOccupancyFactor, kOccupancyAddend);
      }
      sum += x;
    }
    return sum;
  }
};

TEST_F(OccupancyCudaTest, SharedMemoryLimitsTheResidentWarps) {
  for (const OccupancyWork work : {OccupancyWork::kLoads, OccupancyWork::kMultiplyAdds}) {
    for (const int independent : {1, 4}) {
      for (const int warps : {1, 2, 3, 8, 16, 32}) {
        EXPECT_EQ(Run(ParamsFor(work, OccupancyLimit::kSharedMemory, warps, independent)), warps);
      }
    }
  }
}

TEST_F(OccupancyCudaTest, RegistersLimitTheResidentWarps) {
  for (const OccupancyWork work : {OccupancyWork::kLoads, OccupancyWork::kMultiplyAdds}) {
    for (const int independent : {1, 4}) {
      for (const int warps : kRegisterWarps) {
        const int resident = Run(ParamsFor(work, OccupancyLimit::kRegisters, warps, independent));
        EXPECT_EQ(resident, warps) << static_cast<int>(work) << " " << independent;
      }
    }
  }
}

TEST_F(OccupancyCudaTest, WavesAreOfSixteenWarps) {
  for (const int warps : {16, 17, 40}) {
    EXPECT_EQ(Run(ParamsFor(OccupancyWork::kMultiplyAdds, OccupancyLimit::kGrid, warps, 1)), kWaveWarps);
  }
}

}  // namespace
}  // namespace ridgeline::kernels::microbench
