// Dropout's mask in device code, a word of 16 bytes of elements at a time.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/fused/dropout.h"
#include "kernels/fused/vectors.cuh"

namespace ridgeline::kernels::fused {

// Which elements of the word that begins at `position`, a multiple of its size, are kept, one bit each.
template <typename T>
__device__ __forceinline__ std::uint32_t KeptOfWord(const DropoutRule& rule, std::int64_t position) {
  constexpr int kElems = kVectorElems<T>;
  const microbench::PhiloxCounter bits = rule.BitsOfBlock(static_cast<std::uint64_t>(position / kDropoutBlockElems));
  const bool upper_half = position % kDropoutBlockElems != 0;  // of a block; words of float32 have half of one
  std::uint32_t kept = 0;
#pragma unroll
  for (int i = 0; i < kElems; ++i) {
    const std::uint32_t word = upper_half ? bits[(kDropoutBlockElems - kElems + i) / 2] : bits[i / 2];
    kept |= static_cast<std::uint32_t>(rule.Keeps(DropoutRule::BitsOfElement(word, i))) << i;
  }
  return kept;
}

// The same of a word that begins anywhere, and may begin before the first element.
template <typename T>
__device__ __forceinline__ std::uint32_t KeptAnywhere(const DropoutRule& rule, std::int64_t position) {
  if (position >= 0 && position % kVectorElems<T> == 0) return KeptOfWord<T>(rule, position);
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
