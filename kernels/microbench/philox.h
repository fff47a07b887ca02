// Philox4x32-10: a counter-based random generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11). A
// block of the sequence is a function of its counter and the key, so any thread can make any part.
#pragma once

#include <array>
#include <cstdint>

namespace ridgeline::kernels::microbench {

using PhiloxCounter = std::array<std::uint32_t, 4>;  // least significant word first; also a block of random bits
using PhiloxKey = std::array<std::uint32_t, 2>;

inline constexpr int kPhiloxRounds = 10;
inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
using PhiloxRoundKeys = std::array<PhiloxKey, kPhiloxRounds>;

constexpr PhiloxKey NextRoundKey(PhiloxKey key) {
  constexpr PhiloxKey kWeyl = {0x9E3779B9u, 0xBB67AE85u};  // golden ratio; sqrt(3) - 1
  return {key[0] + kWeyl[0], key[1] + kWeyl[1]};
}

constexpr PhiloxCounter PhiloxRound(PhiloxCounter counter, PhiloxKey key) {
  const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * counter[0];
  const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * counter[2];
  return {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
          static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
}

constexpr PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    counter = PhiloxRound(counter, key);
    key = NextRoundKey(key);
  }
  return counter;
}

// The same, for those who use a key often and keep the keys of its rounds.
constexpr PhiloxRoundKeys RoundKeysOf(PhiloxKey key) {
  PhiloxRoundKeys keys = {};
  for (PhiloxKey& round_key : keys) {
    round_key = key;
    key = NextRoundKey(key);
  }
  return keys;
}
constexpr PhiloxCounter Philox4x32Of(PhiloxCounter counter, const PhiloxRoundKeys& keys) {
  for (int round = 0; round < kPhiloxRounds; ++round) counter = PhiloxRound(counter, keys[round]);
  return counter;
}

}  // namespace ridgeline::kernels::microbench
