// Dropout's mask in device code, a word of 16 bytes of elements at a time.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/fused/dropout.h"
#include "kernels/fused/vectors.cuh"

namespace ridgeline::kernels::fused {

// The bits of a word's elements, 16 each: the first in the lower half of word 0. It begins at `position`, a multiple of its
// size.
template <typename T>
__device__ __forceinline__ void BitsOfWord(const DropoutRule& rule, std::int64_t position,
                                           std::uint32_t (&bits)[kVectorElems<T> / 2]) {
  const microbench::PhiloxCounter block = rule.BitsOfBlock(static_cast<std::uint64_t>(position) / kDropoutBlockElems);
  const bool upper_half = kVectorElems<T> == 4 && position % kDropoutBlockElems != 0;  // a word of float32 has half a block
#pragma unroll
  for (int i = 0; i < kVectorElems<T> / 2; ++i) bits[i] = upper_half ? block[i + kVectorElems<T> / 2] : block[i];
}

// The bits of several words, `stride` elements apart. Round by round for all of them: each round's keys are fetched once.
template <typename T, int kWords>
__device__ __forceinline__ void BitsOfWords(const DropoutRule& rule, std::int64_t position, int stride,
                                            std::uint32_t (&bits)[kWords][kVectorElems<T> / 2]) {
  if constexpr (kVectorElems<T> == kDropoutBlockElems) {
    microbench::PhiloxCounter counters[kWords];
#pragma unroll
    for (int v = 0; v < kWords; ++v) {
      counters[v] = rule.CounterOf(static_cast<std::uint64_t>(position + v * stride) / kDropoutBlockElems);
    }
#pragma unroll
    for (int round = 0; round < microbench::kPhiloxRounds; ++round) {
#pragma unroll
      for (microbench::PhiloxCounter& counter : counters) counter = microbench::PhiloxRound(counter, rule.keys[round]);
    }
#pragma unroll
    for (int v = 0; v < kWords; ++v) {
#pragma unroll
      for (int i = 0; i < kVectorElems<T> / 2; ++i) bits[v][i] = counters[v][i];
    }
  } else {
#pragma unroll
    for (int v = 0; v < kWords; ++v) BitsOfWord<T>(rule, position + v * stride, bits[v]);
  }
}

// What dropout makes of elements, by a rule that keeps any.
template <int kElems>
__device__ __forceinline__ void DropElements(const DropoutRule& rule, const std::uint32_t (&bits)[kElems / 2],
                                             float (&x)[kElems]) {
  const std::uint32_t threshold = rule.threshold << 16;
#pragma unroll
  for (int i = 0; i < kElems / 2; ++i) {
    x[2 * i] = (bits[i] << 16) >= threshold ? x[2 * i] * rule.scale : 0.0f;
    x[2 * i + 1] = bits[i] >= threshold ? x[2 * i + 1] * rule.scale : 0.0f;
  }
}

// Which of a word's elements are kept, one bit each.
template <int kHalves>
__device__ __forceinline__ std::uint32_t KeptOfBits(const DropoutRule& rule, const std::uint32_t (&bits)[kHalves]) {
  std::uint32_t kept = 0;
#pragma unroll
  for (int i = 0; i < 2 * kHalves; ++i) {
    kept |= static_cast<std::uint32_t>(rule.Keeps(DropoutRule::BitsOfElement(bits[i / 2], i))) << i;
  }
  return kept;
}

// The same of the word's that begins at `position`, which may be anywhere, and may begin before the first element.
template <typename T>
__device__ __forceinline__ std::uint32_t KeptAnywhere(const DropoutRule& rule, std::int64_t position) {
  if (position >= 0 && position % kVectorElems<T> == 0) {
    std::uint32_t bits[kVectorElems<T> / 2];
    BitsOfWord<T>(rule, position, bits);
    return KeptOfBits(rule, bits);
  }
  std::uint32_t kept = 0;
#pragma unroll 1
  for (int i = 0; i < kVectorElems<T>; ++i) {
    if (position + i >= 0) kept |= static_cast<std::uint32_t>(rule.KeepsElement(position + i)) << i;
  }
  return kept;
}

// Four bits as four bytes.
__device__ __forceinline__ std::uint32_t SpreadBits(std::uint32_t bits) { return ((bits & 0xf) * 0x00204081u) & 0x01010101u; }

template <typename T>
__device__ __forceinline__ void StoreMask(std::uint8_t* mask, int first, const Bounds<int>& bounds, std::uint32_t kept) {
  std::uint8_t* const to = mask + first;
  if (bounds.HoldWhole<T>(first) && reinterpret_cast<std::uintptr_t>(to) % kVectorElems<T> == 0) {
    if constexpr (kVectorElems<T> == 4) {
      *reinterpret_cast<std::uint32_t*>(to) = SpreadBits(kept);
    } else {
      *reinterpret_cast<uint2*>(to) = {SpreadBits(kept), SpreadBits(kept >> 4)};
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kVectorElems<T>; ++i) {
    if (bounds.Hold(first + i)) mask[first + i] = (kept >> i) & 1;
  }
}

}  // namespace ridgeline::kernels::fused
