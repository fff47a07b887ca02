// Tensors in words of 16 bytes. An array is cut where its address is a multiple of 16, so a row that begins in the middle of a
// word has a first and a last word that are not wholly its own; of those, and of arrays that don't lie alike, elements go one
// by one.
//
//   address / 16      │       │       │       │
//   row               ░░░░▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓░░░        shift: elements of the first word that lie before the row
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/common/float16.cuh"

namespace ridgeline::kernels::fused {

template <typename T>
inline constexpr int kVectorElems = 16 / sizeof(T);

template <typename Pair>
__device__ __forceinline__ Pair AsPair(std::uint32_t bits) {
  Pair pair;
  memcpy(&pair, &bits, sizeof(bits));
  return pair;
}

// Elements as memory has them.
template <typename T>
struct Vector {
  uint4 bits;

  __device__ __forceinline__ void Unpack(float (&values)[kVectorElems<T>]) const {
    const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (std::is_same_v<T, float>) {
        values[i] = __uint_as_float(words[i]);
      } else {
        const float2 pair = UnpackPair<T>(words[i]);
        values[2 * i] = pair.x;
        values[2 * i + 1] = pair.y;
      }
    }
  }

  static __device__ __forceinline__ Vector Pack(const float (&values)[kVectorElems<T>]) {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (std::is_same_v<T, float>) {
        words[i] = __float_as_uint(values[i]);
      } else {
        words[i] = PackPair<T>(values[2 * i], values[2 * i + 1]);
      }
    }
    return {make_uint4(words[0], words[1], words[2], words[3])};
  }

  static __device__ __forceinline__ Vector Filled(float value) {
    float values[kVectorElems<T>];
#pragma unroll
    for (float& element : values) element = value;
    return Pack(values);
  }
};

template <typename T>
constexpr Vector<T> OnesVector() {
  constexpr std::uint32_t kBits = std::is_same_v<T, float> ? 0x3f800000 : std::is_same_v<T, __half> ? 0x3c003c00 : 0x3f803f80;
  return {{kBits, kBits, kBits, kBits}};
}

// Elements [0, end) of an array, where a vector may reach over either end.
template <typename Index>
struct Bounds {
  Index end;

  template <typename T>
  __device__ __forceinline__ bool HoldWhole(Index first) const {
    return first >= 0 && first + kVectorElems<T> <= end;
  }
  __device__ __forceinline__ bool Hold(Index element) const { return element >= 0 && element < end; }
};

// How often what is loaded will be wanted again.
enum class Reuse { kNever, kSoon };

template <typename T, Reuse kReuse>
__device__ __forceinline__ Vector<T> LoadWord(const T* from) {
  Vector<T> vector;
  if constexpr (kReuse == Reuse::kNever) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(vector.bits.x), "=r"(vector.bits.y), "=r"(vector.bits.z), "=r"(vector.bits.w)
                 : "l"(from));
  } else {
    vector.bits = __ldg(reinterpret_cast<const uint4*>(from));
  }
  return vector;
}

// Elements [first, first + kVectorElems) of `array`; those outside the bounds are `outside`. `aligned`: array + first is a
// multiple of 16 bytes.
template <typename T, Reuse kReuse = Reuse::kNever, typename Index>
__device__ __forceinline__ Vector<T> Load(const T* array, Index first, const Bounds<Index>& bounds, bool aligned,
                                          float outside = 0) {
  if (aligned && bounds.template HoldWhole<T>(first)) return LoadWord<T, kReuse>(array + first);
  float values[kVectorElems<T>];
#pragma unroll
  for (int i = 0; i < kVectorElems<T>; ++i) values[i] = bounds.Hold(first + i) ? ToFloat(array[first + i]) : outside;
  return Vector<T>::Pack(values);
}

template <typename T, typename Index>
__device__ __forceinline__ void Store(T* array, Index first, const Bounds<Index>& bounds, bool aligned,
                                      const float (&values)[kVectorElems<T>]) {
  if (aligned && bounds.template HoldWhole<T>(first)) {
    __stcs(reinterpret_cast<uint4*>(array + first), Vector<T>::Pack(values).bits);
    return;
  }
#pragma unroll
  for (int i = 0; i < kVectorElems<T>; ++i) {
    if (bounds.Hold(first + i)) array[first + i] = FromFloat<T>(values[i]);
  }
}

}  // namespace ridgeline::kernels::fused
