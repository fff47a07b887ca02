// What the decode kernel must know at compile time.
#pragma once

#include <cuda_runtime.h>

#include "kernels/attention/decode/decode_shape.h"

namespace ridgeline::kernels::attention {

// What is computed from `value` is computed here, not before the loop that this stands in. Until the first copies start, the
// multiprocessor meets each instruction for the first time, and fetching one costs about six cycles.
__device__ __forceinline__ void KeepFromHoisting(int& value) { asm volatile("" : "+r"(value)); }

// Elem: __half or __nv_bfloat16. kHeadDim: one of kDecodeHeadDims. kRowMmas: fragments of 8 rows that a warp holds.
// kHasOptions: windows, soft cap, ALiBi, bias and scales that are not positive; without them they cost nothing.
template <typename Elem, int kHeadDim_, int kRowMmas_, bool kHasOptions_>
struct DecodeTraits {
  using T = Elem;
  static constexpr int kHeadDim = kHeadDim_;
  static constexpr int kRowMmas = kRowMmas_;
  static constexpr bool kHasOptions = kHasOptions_;

  static constexpr int kTileKeys = kDecodeTileKeys;
  static constexpr int kRows = kDecodeRowMma * kRowMmas;
  static constexpr int kStages = DecodeStages(kHeadDim);
  static constexpr int kDimSteps = kHeadDim / 16;  // of the sum in K·Qᵀ, and fragments of Oᵀ
  // The queries stay in registers where these suffice; else a tile fetches them again, from the L1 cache.
  static constexpr bool kKeepsQuery = kHeadDim * kRowMmas <= 256;
  static constexpr int kMaxWarps = kHeadDim > 128 ? 4 : kMostDecodeWarps;
  static_assert(kHeadDim % 16 == 0, "mma consumes columns in groups of 16");
  static_assert(kRows <= kMostDecodeRows, "the merge has room for these rows");

  static constexpr int kRowBytes = kHeadDim * 2;
  static constexpr int kTileBytes = kTileKeys * kRowBytes;
  static constexpr int kSlotBytes = 2 * kTileBytes;  // keys, then values
  static constexpr int kRingBytes = kStages * kSlotBytes;

  // A merged row: each lane has pieces of four columns, 128 columns apart.
  static constexpr int kPieces = (kHeadDim + 127) / 128;
  static constexpr int kMergePitch = DecodeMergePitch(kHeadDim);
  static constexpr int kPartPitch = DecodePartPitch(kHeadDim);

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int warp() { return static_cast<int>(threadIdx.x / 32); }
};

}  // namespace ridgeline::kernels::attention
