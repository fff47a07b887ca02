// Dropout's mask in device code, a word of 16 bytes of elements at a time.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/fused/dropout.h"
#include "kernels/fused/vectors.cuh"

namespace ridgeline::kernels::fused {

// Random bits of a word's elements: 16 for each, the first in the lower half of words[0].
template <typename T>
struct ElementBits {
  std::uint32_t words[kVectorElems<T> / 2];

  // Of the word that begins at `position`, a multiple of its size.
  static __device__ __forceinline__ ElementBits OfWord(const DropoutRule& rule, std::int64_t position) {
    constexpr int kWords = kVectorElems<T> / 2, kBlockWords = kDropoutBlockElems / 2;
    const microbench::PhiloxCounter bits = rule.BitsOfBlock(static_cast<std::uint64_t>(position / kDropoutBlockElems));
    const bool upper_half = position % kDropoutBlockElems != 0;  // of a block; words of float32 have half of one
    ElementBits of;
#pragma unroll
    for (int i = 0; i < kWords; ++i) of.words[i] = upper_half ? bits[kBlockWords - kWords + i] : bits[i];
    return of;
  }

  // Of a word that begins anywhere, and may begin before the first element.
  static __device__ __forceinline__ ElementBits Anywhere(const DropoutRule& rule, std::int64_t position) {
    if (position >= 0 && position % kVectorElems<T> == 0) return OfWord(rule, position);
    ElementBits of = {};
#pragma unroll
    for (int i = 0; i < kVectorElems<T>; ++i) {
      if (position + i >= 0) of.words[i / 2] |= rule.BitsAt(position + i) << (i % 2 * 16);
    }
    return of;
  }

  __device__ __forceinline__ bool Keeps(const DropoutRule& rule, int element) const {
    // Compared in the upper half of 32 bits, where every second element's already are.
    const std::uint32_t bits = element % 2 == 0 ? words[element / 2] << 16 : words[element / 2] & 0xffff0000u;
    return bits >= rule.upper_threshold;
  }
};

template <typename T>
__device__ __forceinline__ void StoreMask(const DropoutRule& rule, const ElementBits<T>& bits, std::uint8_t* mask, int first,
                                          const Bounds<int>& bounds) {
  constexpr int kElems = kVectorElems<T>;
  std::uint8_t* const to = mask + first;
  std::uint32_t bytes[kElems / 4] = {};
#pragma unroll
  for (int i = 0; i < kElems; ++i) {
    const bool keeps = bits.Keeps(rule, i);
    bytes[i / 4] |= static_cast<std::uint32_t>(keeps) << (i % 4 * 8);
  }
  if (bounds.template HoldWhole<T>(first) && reinterpret_cast<std::uintptr_t>(to) % kElems == 0) {
    if constexpr (kElems == 4) {
      *reinterpret_cast<std::uint32_t*>(to) = bytes[0];
    } else {
      *reinterpret_cast<uint2*>(to) = {bytes[0], bytes[1]};
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kElems; ++i) {
    if (bounds.Hold(first + i)) to[i] = static_cast<std::uint8_t>(bytes[i / 4] >> (i % 4 * 8));
  }
}

}  // namespace ridgeline::kernels::fused
