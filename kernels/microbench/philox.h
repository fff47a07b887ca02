// Philox4x32-10: a counter-based random generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11). A
// block of the sequence is a function of its counter and the key, so any thread can make any part.
#pragma once

#include <array>
#include <cstdint>

namespace ridgeline::kernels::microbench {

using PhiloxCounter = std::array<std::uint32_t, 4>;  // least significant word first; also a block of random bits
using PhiloxKey = std::array<std::uint32_t, 2>;

constexpr PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  constexpr int kRounds = 10;
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53u;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57u;
  constexpr PhiloxKey kWeyl = {0x9E3779B9u, 0xBB67AE85u};  // golden ratio; sqrt(3) - 1
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key = {key[0] + kWeyl[0], key[1] + kWeyl[1]};
  }
  return counter;
}

}  // namespace ridgeline::kernels::microbench
