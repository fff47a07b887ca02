#include <cstdint>
#include <limits>

#include "kernels/common/simd_fixed_targets.h"
#include "kernels/microbench/softmax_passes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/microbench/softmax_passes_cpu.cc"  // this file, once for each SIMD target
#include "hwy/foreach_target.h"                                        // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::microbench::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using namespace kernels::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the same target's primitives

using Lanes = hn::ScalableTag<float>;
using Vector = hn::Vec<Lanes>;
constexpr int kVectors = 4;
static_assert(kSoftmaxGranule % (kVectors * hn::MaxLanes(Lanes())) == 0, "a granule is whole groups of vectors");

std::int64_t NumLanes() { return static_cast<std::int64_t>(hn::Lanes(Lanes())); }

float Largest(Vector (&v)[kVectors]) {
  const Vector largest = hn::Max(hn::Max(v[0], v[1]), hn::Max(v[2], v[3]));
  return hn::GetLane(hn::MaxOfLanes(Lanes(), largest));
}

float Total(Vector (&v)[kVectors]) {
  return hn::GetLane(hn::SumOfLanes(Lanes(), hn::Add(hn::Add(v[0], v[1]), hn::Add(v[2], v[3]))));
}

void Fill(Vector (&v)[kVectors], float value) {
  for (Vector& each : v) each = hn::Set(Lanes(), value);
}

// `copy` may be null.
float Maximum(const float* row, std::int64_t columns, float* copy) {
  const Lanes d;
  const std::int64_t lanes = NumLanes();
  Vector largest[kVectors];
  Fill(largest, -std::numeric_limits<float>::infinity());
  for (std::int64_t c = 0; c < columns; c += kVectors * lanes) {
    for (int v = 0; v < kVectors; ++v) {
      const Vector x = hn::LoadU(d, row + c + v * lanes);
      largest[v] = hn::Max(largest[v], x);
      if (copy != nullptr) hn::StoreU(x, d, copy + c + v * lanes);
    }
  }
  return Largest(largest);
}

// The sum of exp(x - maximum); `exponentials`, which may be null or the row itself, gets the terms.
float SumOfExponentials(const float* row, std::int64_t columns, float maximum, float* exponentials) {
  const Lanes d;
  const std::int64_t lanes = NumLanes();
  Vector sums[kVectors];
  Fill(sums, 0);
  for (std::int64_t c = 0; c < columns; c += kVectors * lanes) {
    for (int v = 0; v < kVectors; ++v) {
      const Vector e = ExpOfNonPositive(d, hn::Sub(hn::LoadU(d, row + c + v * lanes), hn::Set(d, maximum)));
      sums[v] = hn::Add(sums[v], e);
      if (exponentials != nullptr) hn::StoreU(e, d, exponentials + c + v * lanes);
    }
  }
  return Total(sums);
}

struct MaximumAndSum {
  float maximum, sum;
};

// Each lane has its own maximum and sum; they meet at the end.
MaximumAndSum OnlineMaximumAndSum(const float* row, std::int64_t columns) {
  const Lanes d;
  const std::int64_t lanes = NumLanes();
  Vector maximum = hn::Set(d, std::numeric_limits<float>::lowest());
  Vector sum = hn::Zero(d);
  for (std::int64_t c = 0; c < columns; c += kVectors * lanes) {
    Vector x[kVectors];
    for (int v = 0; v < kVectors; ++v) x[v] = hn::LoadU(d, row + c + v * lanes);
    const Vector larger = hn::Max(maximum, hn::Max(hn::Max(x[0], x[1]), hn::Max(x[2], x[3])));
    sum = hn::Mul(sum, ExpOfNonPositive(d, hn::Sub(maximum, larger)));
    maximum = larger;
    for (const Vector& each : x) sum = hn::Add(sum, ExpOfNonPositive(d, hn::Sub(each, maximum)));
  }
  const Vector largest = hn::MaxOfLanes(d, maximum);
  const Vector rescaled = hn::Mul(sum, ExpOfNonPositive(d, hn::Sub(maximum, largest)));
  return {hn::GetLane(largest), hn::GetLane(hn::SumOfLanes(d, rescaled))};
}

void WriteSoftmax(const float* row, std::int64_t columns, MaximumAndSum of, float* output) {
  const Lanes d;
  const std::int64_t lanes = NumLanes();
  const Vector maximum = hn::Set(d, of.maximum), factor = hn::Set(d, 1 / of.sum);
  for (std::int64_t c = 0; c < columns; c += lanes) {
    hn::StoreU(hn::Mul(ExpOfNonPositive(d, hn::Sub(hn::LoadU(d, row + c), maximum)), factor), d, output + c);
  }
}

void WriteScaled(const float* row, std::int64_t columns, float factor, float* output) {
  const Lanes d;
  const std::int64_t lanes = NumLanes();
  for (std::int64_t c = 0; c < columns; c += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + c), hn::Set(d, factor)), d, output + c);
  }
}

}  // namespace

void SoftmaxRow(const SoftmaxPassesParams& params, std::int64_t row_idx, int slot) {
  const float* const row = params.input + row_idx * params.columns;
  float* const output = params.output + row_idx * params.columns;
  switch (params.passes) {
    case SoftmaxPasses::kThree: {
      const float maximum = Maximum(row, params.columns, nullptr);
      const float sum = SumOfExponentials(row, params.columns, maximum, nullptr);
      return WriteSoftmax(row, params.columns, {maximum, sum}, output);
    }
    case SoftmaxPasses::kTwo:
      return WriteSoftmax(row, params.columns, OnlineMaximumAndSum(row, params.columns), output);
    case SoftmaxPasses::kOne: {
      float* const held = params.scratch + slot * params.columns;
      const float maximum = Maximum(row, params.columns, held);
      const float sum = SumOfExponentials(held, params.columns, maximum, held);
      return WriteScaled(held, params.columns, 1 / sum, output);
    }
  }
}

}  // namespace ridgeline::kernels::microbench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels::microbench {

HWY_EXPORT(SoftmaxRow);

void RunOnCpu(const SoftmaxPassesParams& params, Executor& executor) {
  executor.ParallelFor(params.rows, [&](std::int64_t row, int slot) { HWY_DYNAMIC_DISPATCH(SoftmaxRow)(params, row, slot); });
}

}  // namespace ridgeline::kernels::microbench
#endif  // HWY_ONCE
