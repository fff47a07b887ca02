// What of keys and values stays in the L2 cache, for the next launch that reads them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/decode/decode_schedule.h"
#include "kernels/attention/decode/decode_shape.h"
#include "kernels/common/cache_policy.cuh"

namespace ridgeline::kernels::attention {

// A decode loop reads the same keys and values over and over. Of more than the cache takes it would lose each line just before
// its next use; so some tiles are there to stay, always the same ones, and the others are the first to go. Where the cache
// takes next to nothing of them, all are.
class TileCachePolicy {
 public:
  // Of `tiles` tiles in all.
  __device__ __forceinline__ TileCachePolicy(std::int64_t tiles, const DecodeSchedule& schedule)
      : kept_(tiles <= schedule.fitting_tiles ? kAll : KeptOf(tiles, schedule.kept_tiles)),
        stay_(EvictNormalPolicy()),
        go_(EvictFirstPolicy()) {}

  // Of the tile that begins at key `first_key` of any sequence.
  __device__ __forceinline__ std::uint64_t Of(int first_key) const {
    // Multiples of the golden ratio fill an interval evenly, also those of every second, fourth or eighth number.
    constexpr std::uint32_t kGolden = 0x9e3779b1;
    const std::uint32_t place = static_cast<std::uint32_t>(first_key) / kDecodeTileKeys * kGolden;
    return place / (0xffffffffu / kAll + 1) < kept_ ? stay_ : go_;
  }

 private:
  static constexpr unsigned kAll = 1024;
  static constexpr unsigned kFewest = 16;

  __device__ static unsigned KeptOf(std::int64_t tiles, std::int64_t kept_tiles) {
    constexpr std::int64_t kMost = 0xffffffff;
    const unsigned kept = static_cast<unsigned>(kept_tiles) * kAll / static_cast<unsigned>(min(tiles, kMost));
    return kept < kFewest ? 0 : kept;
  }

  const unsigned kept_;  // of kAll
  const std::uint64_t stay_;
  const std::uint64_t go_;
};

}  // namespace ridgeline::kernels::attention
