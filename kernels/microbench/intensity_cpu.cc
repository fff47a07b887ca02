#include <cstdint>

#include "kernels/common/simd_fixed_targets.h"
#include "kernels/microbench/intensity.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/microbench/intensity_cpu.cc"  // this file, once for each SIMD target
#include "hwy/foreach_target.h"                                   // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::microbench::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Lanes = hn::ScalableTag<float>;
using Vector = hn::Vec<Lanes>;

constexpr int kVectors = 8;  // independent of each other, so that the latency of a multiply-add hides behind the others
static_assert(kIntensityGranule / 4 % (kVectors * hn::MaxLanes(Lanes())) == 0, "a granule is whole groups of vectors");

template <int kJoin>
HWY_INLINE Vector LoadJoined(const float* from) {
  constexpr std::int64_t kSpan = kIntensityGranule / kJoin;
  const Lanes d;
  Vector joined = hn::LoadU(d, from);
  for (int i = 1; i < kJoin; ++i) joined = hn::Max(joined, hn::LoadU(d, from + i * kSpan));
  return joined;
}

template <int kJoin>
float Reduce(const IntensityParams& params, std::int64_t begin, std::int64_t end) {
  const Lanes d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Vector half = hn::Set(d, 0.5f), weight = hn::Set(d, kIntensityWeight);
  Vector sums[kVectors];
  for (Vector& sum : sums) sum = hn::Zero(d);
  for (std::int64_t granule = begin; granule < end; granule += kIntensityGranule) {
    for (std::int64_t i = 0; i < kIntensityGranule / kJoin; i += kVectors * lanes) {
      Vector m[kVectors], y[kVectors];
      for (int v = 0; v < kVectors; ++v) y[v] = m[v] = LoadJoined<kJoin>(params.source + granule + i + v * lanes);
      for (std::int64_t step = 0; step < params.multiply_adds; ++step) {
        for (int v = 0; v < kVectors; ++v) y[v] = hn::MulAdd(y[v], half, m[v]);
      }
      if (params.adds_only) {
        for (int v = 0; v < kVectors; ++v) sums[v] = hn::Add(sums[v], y[v]);
      } else {
        for (int v = 0; v < kVectors; ++v) sums[v] = hn::MulAdd(y[v], weight, sums[v]);
      }
    }
  }
  Vector total = hn::Zero(d);
  for (const Vector& sum : sums) total = hn::Add(total, sum);
  return hn::GetLane(hn::SumOfLanes(d, total));
}

}  // namespace

float ReduceSlice(const IntensityParams& params, std::int64_t begin, std::int64_t end) {
  if (params.join == 1) return Reduce<1>(params, begin, end);
  return params.join == 2 ? Reduce<2>(params, begin, end) : Reduce<4>(params, begin, end);
}

}  // namespace ridgeline::kernels::microbench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels::microbench {

HWY_EXPORT(ReduceSlice);

void RunOnCpu(const IntensityParams& params, Executor& executor) {
  const std::int64_t num_granules = params.elements / kIntensityGranule;
  const int num_slices = executor.num_slots();
  executor.ParallelFor(num_slices, [&](std::int64_t slice, int /*slot*/) {
    const std::int64_t begin = num_granules * slice / num_slices * kIntensityGranule;
    const std::int64_t end = num_granules * (slice + 1) / num_slices * kIntensityGranule;
    params.slice_sums[slice] = HWY_DYNAMIC_DISPATCH(ReduceSlice)(params, begin, end);
  });
}

}  // namespace ridgeline::kernels::microbench
#endif  // HWY_ONCE
