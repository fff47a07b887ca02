// Sums of 16-bit elements and of their squares, by the matrix unit: products of 16-bit numbers are exact there, sums are in
// float32, and a warp's 256 elements are three instructions where unpacking them would be dozens.
//
// With a word of 16 bytes as a lane's fragment of A (mma.cuh), row g of A is words 0 and 2 of the four lanes 4g to 4g+3, and
// row g + 8 their words 1 and 3. A times ones has the rows' sums in each column. Words 0 and 2 are also the lanes' fragments of
// a B whose column g is row g of A, so that the diagonal of A · B has the rows' sums of squares; words 1 and 3 likewise.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/common/float16.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/fused/row_statistics.cuh"
#include "kernels/fused/vectors.cuh"

namespace ridgeline::kernels::fused {

// Sums over four neighbouring lanes.
template <typename T>
class QuadMoments {
 public:
  static constexpr int kLanes = 4;

  // All lanes of the warp call it.
  __device__ __forceinline__ void Add(const Vector<T>& word) {
    const std::uint32_t rows[4] = {word.bits.x, word.bits.y, word.bits.z, word.bits.w};
    Mma16816<T>(sums_, rows, kOnePair, kOnePair);
    Mma16816<T>(first_squares_, rows, rows[0], rows[2]);
    Mma16816<T>(second_squares_, rows, rows[1], rows[3]);
  }

  // Of `lanes` neighbouring lanes, a power of two and at least kLanes.
  __device__ __forceinline__ Moments MergedOver(int lanes) const {
    // Sums are in each of four lanes, squares in one of them.
    const unsigned lane = (threadIdx.y * blockDim.x + threadIdx.x) % kWarpThreads, row = lane / 4, columns = lane % 4;
    const float even = first_squares_[0] + second_squares_[2], odd = first_squares_[1] + second_squares_[3];
    const float squares = row / 2 != columns ? 0.0f : row % 2 == 0 ? even : odd;
    const float sum = columns == 0 ? sums_[0] + sums_[2] : 0.0f;
    return Moments{{sum, squares}}.MergedOver(lanes);
  }

 private:
  static constexpr std::uint32_t kOnePair = std::is_same_v<T, __half> ? 0x3c003c00 : 0x3f803f80;

  float sums_[4] = {}, first_squares_[4] = {}, second_squares_[4] = {};
};

}  // namespace ridgeline::kernels::fused
