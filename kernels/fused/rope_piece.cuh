// What one thread turns at a time: words of 16 bytes of a head, or single elements where words don't fit.
//
//   interleaved    │ x0 y0 x1 y1 .. │                          a word has both elements of its pairs
//   half split     │ x0 x1 x2 x3 .. │ ... │ y0 y1 y2 y3 .. │   a piece has two words, half of rotary_dim apart
//   behind rotary_dim: words that are copied
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/common/fast_division.h"
#include "kernels/fused/fused.h"
#include "kernels/fused/rope_sines.cuh"
#include "kernels/fused/vectors.cuh"

namespace ridgeline::kernels::fused {

// How heads are cut into pieces.
struct HeadPieces {
  int head_dim, rotary_dim;
  int num_turning;     // the first so many of a head; the others are copied
  FastDivision count;  // of a head
};

template <typename T, RopeLayout kLayout, bool kWords>
class RopePiece {
 public:
  static constexpr int kElems = kWords ? kVectorElems<T> : 1;
  static constexpr bool kHasPairsInWord = kWords && kLayout == RopeLayout::kInterleaved;
  static constexpr int kPairs = kHasPairsInWord ? kElems / 2 : kElems;

  // Piece `index` of a row of heads; is there none, the row's `num_pieces` say so.
  __device__ __forceinline__ void Load(const HeadPieces& pieces, const T* row, int index, int num_pieces) {
    pair_ = kNone;
    if (index >= num_pieces) return;
    const auto head = static_cast<int>(pieces.count.Quotient(static_cast<std::uint32_t>(index)));
    const int place = index - head * static_cast<int>(pieces.count.divisor());
    element_ = head * pieces.head_dim;
    if (place < pieces.num_turning) {
      pair_ = place * kPairs;
      element_ += kLayout == RopeLayout::kInterleaved ? 2 * pair_ : pair_;
      if constexpr (!kHasPairsInWord) second_ = LoadUnit(row + element_ + SecondDistance(pieces));
    } else {
      pair_ = kCopied;
      element_ += pieces.rotary_dim + (place - pieces.num_turning) * kElems;
    }
    first_ = LoadUnit(row + element_);
  }

  // Stores it, turned by its pairs' sines and cosines.
  __device__ __forceinline__ void Store(const HeadPieces& pieces, const TokenSines& sines, T* row) const {
    if (pair_ == kNone) return;
    if (pair_ == kCopied) return StoreUnit(first_, row + element_);
    if constexpr (!kWords) {
      float x = ToFloat(first_), y = ToFloat(second_);
      Turn(x, y, sines.Pair(pair_));
      StoreUnit(FromFloat<T>(x), row + element_);
      StoreUnit(FromFloat<T>(y), row + element_ + SecondDistance(pieces));
    } else if constexpr (kHasPairsInWord) {
      float x[kElems];
      first_.Unpack(x);
#pragma unroll
      for (int i = 0; i < kPairs; i += 2) {
        const float4 by = sines.Unit((pair_ + i) / 2);
        Turn(x[2 * i], x[2 * i + 1], {by.x, by.y});
        Turn(x[2 * i + 2], x[2 * i + 3], {by.z, by.w});
      }
      StoreUnit(Vector<T>::Pack(x), row + element_);
    } else {
      float x[kElems], y[kElems];
      first_.Unpack(x);
      second_.Unpack(y);
#pragma unroll
      for (int i = 0; i < kPairs; i += 2) {
        const float4 by = sines.Unit((pair_ + i) / 2);
        Turn(x[i], y[i], {by.x, by.y});
        Turn(x[i + 1], y[i + 1], {by.z, by.w});
      }
      StoreUnit(Vector<T>::Pack(x), row + element_);
      StoreUnit(Vector<T>::Pack(y), row + element_ + SecondDistance(pieces));
    }
  }

  // Copies rows of no heads, as pieces of kElems.
  static __device__ __forceinline__ void Copy(const T* from, T* to) { StoreUnit(LoadUnit(from), to); }

 private:
  using Unit = std::conditional_t<kWords, Vector<T>, T>;
  static constexpr int kNone = -1, kCopied = -2;

  static __device__ __forceinline__ Unit LoadUnit(const T* from) {
    if constexpr (kWords) {
      return LoadWord<T, Reuse::kNever>(from);
    } else {
      return *from;
    }
  }
  static __device__ __forceinline__ void StoreUnit(const Unit& unit, T* to) {
    if constexpr (kWords) {
      __stcs(reinterpret_cast<uint4*>(to), unit.bits);
    } else {
      *to = unit;
    }
  }

  // From a pair's first element to its second; 0 where one word has both.
  static __device__ __forceinline__ int SecondDistance(const HeadPieces& pieces) {
    if constexpr (kLayout == RopeLayout::kInterleaved) return kWords ? 0 : 1;
    return pieces.rotary_dim / 2;
  }

  static __device__ __forceinline__ void Turn(float& first, float& second, float2 sine_cosine) {
    const float turned = first * sine_cosine.y - second * sine_cosine.x;
    second = first * sine_cosine.x + second * sine_cosine.y;
    first = turned;
  }

  Unit first_, second_;
  int element_ = 0;  // of the row
  int pair_ = kNone;
};

}  // namespace ridgeline::kernels::fused
