#include "tests/bench/plain_read.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/common/executor.h"
#include "kernels/common/simd_fixed_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/plain_read.cc"  // this file, once for each SIMD target
#include "hwy/foreach_target.h"                         // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Four sums, so that none waits for another.
std::uint64_t SumWords(const std::uint64_t* words, std::int64_t count) {
  const hn::ScalableTag<std::uint64_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum_0 = hn::Zero(d), sum_1 = hn::Zero(d), sum_2 = hn::Zero(d), sum_3 = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    sum_0 = hn::Add(sum_0, hn::LoadU(d, words + i));
    sum_1 = hn::Add(sum_1, hn::LoadU(d, words + i + lanes));
    sum_2 = hn::Add(sum_2, hn::LoadU(d, words + i + 2 * lanes));
    sum_3 = hn::Add(sum_3, hn::LoadU(d, words + i + 3 * lanes));
  }
  std::uint64_t sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum_0, sum_1), hn::Add(sum_2, sum_3))));
  for (; i < count; ++i) sum += words[i];
  return sum;
}

}  // namespace ridgeline::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::bench {

HWY_EXPORT(SumWords);

std::uint64_t PlainRead(const void* memory, std::int64_t piece_bytes, std::span<const std::int32_t> order,
                        kernels::Executor& executor) {
  const auto* const words = static_cast<const std::uint64_t*>(memory);
  const std::int64_t piece_words = piece_bytes / std::int64_t{sizeof(std::uint64_t)};
  const auto pieces = static_cast<std::int64_t>(order.size());
  const std::int64_t parts = executor.num_slots();
  std::atomic<std::uint64_t> sum = 0;
  executor.ParallelFor(parts, [&](std::int64_t part, int) {
    std::uint64_t part_sum = 0;
    for (std::int64_t i = pieces * part / parts; i < pieces * (part + 1) / parts; ++i) {
      part_sum += HWY_DYNAMIC_DISPATCH(SumWords)(words + order[i] * piece_words, piece_words);
    }
    sum += part_sum;
  });
  return sum;
}

}  // namespace ridgeline::bench
#endif  // HWY_ONCE
