#include <cstdint>

#include "kernels/common/simd_fixed_targets.h"
#include "kernels/microbench/compute_peak.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/microbench/compute_peak_cpu.cc"  // this file, once for each SIMD target
#include "hwy/foreach_target.h"                                      // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::microbench::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <typename T, int kChains>
double Chains(std::int64_t iterations) {
  const hn::ScalableTag<T> d;
  const auto factor = hn::Set(d, static_cast<T>(kFmaFactor));
  const auto addend = hn::Set(d, static_cast<T>(kFmaAddend));
  hn::Vec<hn::ScalableTag<T>> x[kChains];
  for (int c = 0; c < kChains; ++c) x[c] = hn::Set(d, static_cast<T>(c + 1));
  for (std::int64_t i = 0; i < iterations; ++i) {
    for (int c = 0; c < kChains; ++c) x[c] = hn::MulAdd(x[c], factor, addend);
  }
  double sum = 0;
  for (int c = 0; c < kChains; ++c) sum += static_cast<double>(hn::GetLane(x[c]));
  return sum;
}

template <typename T>
double ChainsOf(int chains, std::int64_t iterations) {
  switch (chains) {
    case 1:
      return Chains<T, 1>(iterations);
    case 2:
      return Chains<T, 2>(iterations);
    case 4:
      return Chains<T, 4>(iterations);
    case 8:
      return Chains<T, 8>(iterations);
    default:
      return Chains<T, 12>(iterations);
  }
}

}  // namespace

double FmaTask(const FmaParams& params) {
  return params.type == FmaType::kFloat32 ? ChainsOf<float>(params.chains, params.iterations)
                                          : ChainsOf<double>(params.chains, params.iterations);
}

std::int64_t FmaLanes(FmaType type) {
  return static_cast<std::int64_t>(type == FmaType::kFloat32 ? hn::Lanes(hn::ScalableTag<float>())
                                                             : hn::Lanes(hn::ScalableTag<double>()));
}

}  // namespace ridgeline::kernels::microbench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels::microbench {

HWY_EXPORT(FmaTask);
HWY_EXPORT(FmaLanes);

std::int64_t FmaTaskFlopsOnCpu(const FmaParams& params) {
  return 2 * HWY_DYNAMIC_DISPATCH(FmaLanes)(params.type) * params.chains * params.iterations;
}

void RunOnCpu(const FmaParams& params, Executor& executor) {
  executor.ParallelFor(params.tasks,
                       [&](std::int64_t task, int /*slot*/) { params.results[task] = HWY_DYNAMIC_DISPATCH(FmaTask)(params); });
}

}  // namespace ridgeline::kernels::microbench
#endif  // HWY_ONCE
