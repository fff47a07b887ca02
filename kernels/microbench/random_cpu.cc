#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/common/convert.h"
#include "kernels/microbench/microbench.h"
#include "kernels/microbench/philox.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/microbench/random_cpu.cc"  // this file, once for each SIMD target
#include "hwy/foreach_target.h"                                // must come before highway.h

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

#ifndef RIDGELINE_KERNELS_MICROBENCH_RANDOM_CPU_ONCE_
#define RIDGELINE_KERNELS_MICROBENCH_RANDOM_CPU_ONCE_
namespace ridgeline::kernels::microbench {

constexpr std::int64_t kBlockElements = 4;  // of one Philox counter
constexpr std::int64_t kBatchElements = 512;

// Consecutive elements, and the uniform bits that Box-Muller makes them of: a pair of elements takes one of each.
struct NormalBatch {
  std::array<std::uint32_t, kBatchElements / 2> radius_bits;
  std::array<std::uint32_t, kBatchElements / 2> angle_bits;
  std::array<float, kBatchElements> elements;
};

}  // namespace ridgeline::kernels::microbench
#endif  // RIDGELINE_KERNELS_MICROBENCH_RANDOM_CPU_ONCE_

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::microbench::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// (bits + 1/2) / 2^32, rounded once, in (0, 1]. In two halves, because not every target converts unsigned integers.
template <class D>
HWY_INLINE hn::Vec<D> UniformFromBits(D d, const std::uint32_t* from) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::LoadU(du, from);
  const auto high = hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<16>(bits)));
  const auto low = hn::ConvertTo(d, hn::BitCast(di, hn::And(bits, hn::Set(du, 0xffffu))));
  return hn::MulAdd(high, hn::Set(d, 0x1p-16f), hn::Mul(hn::Add(low, hn::Set(d, 0.5f)), hn::Set(d, 0x1p-32f)));
}

}  // namespace

// Fills batch.elements from its bits: a pair is radius * (cos, sin) of a random angle.
void BoxMuller(float mean, float standard_deviation, NormalBatch& batch) {
  const hn::CappedTag<float, 16> d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < batch.radius_bits.size(); i += lanes) {
    const auto log_uniform = hn::Log(d, UniformFromBits(d, batch.radius_bits.data() + i));
    const auto radius = hn::Sqrt(hn::Mul(hn::Set(d, -2.0f), log_uniform));
    const auto angle = hn::Mul(UniformFromBits(d, batch.angle_bits.data() + i), hn::Set(d, 6.28318531f));
    const auto scaled_radius = hn::Mul(radius, hn::Set(d, standard_deviation));
    const auto first = hn::MulAdd(scaled_radius, hn::Cos(d, angle), hn::Set(d, mean));
    const auto second = hn::MulAdd(scaled_radius, hn::Sin(d, angle), hn::Set(d, mean));
    hn::StoreInterleaved2(first, second, d, batch.elements.data() + 2 * i);
  }
}

}  // namespace ridgeline::kernels::microbench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels::microbench {
namespace {

HWY_EXPORT(BoxMuller);

constexpr std::int64_t kTaskElements = 64 << 10;
static_assert(kTaskElements % kBatchElements == 0 && kBatchElements % kBlockElements == 0, "tasks begin at a Philox counter");

void DrawBits(std::uint64_t seed, std::int64_t first_element, NormalBatch& batch) {
  const PhiloxKey key = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  const std::uint64_t first_counter = static_cast<std::uint64_t>(first_element / kBlockElements);
  for (std::size_t i = 0; i < kBatchElements / kBlockElements; ++i) {
    const std::uint64_t counter = first_counter + i;
    const PhiloxCounter bits =
        Philox4x32({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0}, key);
    batch.radius_bits[2 * i] = bits[0];
    batch.angle_bits[2 * i] = bits[1];
    batch.radius_bits[2 * i + 1] = bits[2];
    batch.angle_bits[2 * i + 1] = bits[3];
  }
}

}  // namespace

void FillNormalOnCpu(DataType type, std::int64_t elements, std::uint64_t seed, float mean, float standard_deviation,
                     void* destination, Executor& executor) {
  const std::int64_t num_tasks = (elements + kTaskElements - 1) / kTaskElements;
  executor.ParallelFor(num_tasks, [&](std::int64_t task_idx, int /*slot*/) {
    const std::int64_t end = std::min(elements, (task_idx + 1) * kTaskElements);
    NormalBatch batch;
    for (std::int64_t begin = task_idx * kTaskElements; begin < end; begin += kBatchElements) {
      DrawBits(seed, begin, batch);
      HWY_DYNAMIC_DISPATCH(BoxMuller)(mean, standard_deviation, batch);
      ConvertFromFloat32(type, batch.elements.data(), std::min(kBatchElements, end - begin),
                         static_cast<std::byte*>(destination) + begin * ElementBytes(type));
    }
  });
}

}  // namespace ridgeline::kernels::microbench
#endif  // HWY_ONCE
