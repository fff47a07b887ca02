// Which elements dropout keeps: a function of seed, offset and the element's position alone, so every device, every tiling and
// every type agrees.
//
// Philox4x32-10 turns the counter (position / 8, offset) under the key `seed` into 128 bits: 16 for each of 8 elements, because
// one block for 4 elements would make the generator the larger part of a kernel. The element is dropped if its 16 bits are
// below round(probability * 2^16); what is kept is divided by the share that is kept on average, exactly.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/fused/fused.h"
#include "kernels/microbench/philox.h"

namespace ridgeline::kernels::fused {

inline constexpr std::int64_t kDropoutBlockElems = 8;  // of one Philox counter

struct DropoutRule {
  microbench::PhiloxRoundKeys keys;  // of the seed
  std::uint32_t offset_low, offset_high;
  std::uint32_t threshold;  // in [0, 2^16]
  float scale;              // of what is kept; 0 if nothing is

  // Bits of elements [8 * block, 8 * block + 8): element i has the lower half of word i / 2 if i is even, the upper if it is
  // odd.
  constexpr microbench::PhiloxCounter BitsOfBlock(std::uint64_t block) const {
    return microbench::Philox4x32Of(CounterOf(block), keys);
  }
  constexpr microbench::PhiloxCounter CounterOf(std::uint64_t block) const {
    return {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), offset_low, offset_high};
  }

  static constexpr std::uint32_t BitsOfElement(std::uint32_t word, int element) {
    return element % 2 == 0 ? word & 0xffffu : word >> 16;
  }
  constexpr bool KeepsAny() const { return threshold <= 0xffff; }
  constexpr bool Keeps(std::uint32_t bits) const { return bits >= threshold; }

  constexpr bool KeepsElement(std::int64_t position) const {
    const microbench::PhiloxCounter bits = BitsOfBlock(static_cast<std::uint64_t>(position / kDropoutBlockElems));
    const int element = static_cast<int>(position % kDropoutBlockElems);
    return Keeps(BitsOfElement(bits[element / 2], element));
  }
};

inline DropoutRule RuleOf(const DropoutOptions& options) {
  constexpr double kSteps = 1 << 16;
  const auto threshold = static_cast<std::uint32_t>(std::lround(options.probability * kSteps));
  const double kept = (kSteps - threshold) / kSteps;
  return {.keys = microbench::RoundKeysOf(
              {static_cast<std::uint32_t>(options.seed), static_cast<std::uint32_t>(options.seed >> 32)}),
          .offset_low = static_cast<std::uint32_t>(options.offset),
          .offset_high = static_cast<std::uint32_t>(options.offset >> 32),
          .threshold = threshold,
          .scale = kept > 0 ? static_cast<float>(1 / kept) : 0.0f};
}

}  // namespace ridgeline::kernels::fused
