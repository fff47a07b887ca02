// The register-blocked product that flash attention and the GEMM share, for code compiled once per SIMD target (hence no
// ordinary include guard).
//
//   C[u, lane] (+)= sum over s of X[u, s] * Y[s, lane]       u < kTileRows, lane < kVectors * Lanes
//
// Y is packed: one step's lanes are contiguous and fill up to kTileVectors registers. X is read one element at a time and
// broadcast, so it may lie in memory as it came: any strides, no transposition. C stays in registers for the whole sum.
//
//              Y[s]  ■■■■ ■■■■ ■■■■      kTileVectors loads        With 8 x 3 accumulators in 32 registers: 11 loads feed 24
//   X[.,s]  ▪ ─────► ■■■■ ■■■■ ■■■■ C    kTileRows broadcasts      multiply-adds, so two load ports keep two FMA units busy.
//           ▪ ─────► ■■■■ ■■■■ ■■■■
#if defined(RIDGELINE_KERNELS_COMMON_SIMD_MULTIPLY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_KERNELS_COMMON_SIMD_MULTIPLY_INL_H_
#undef RIDGELINE_KERNELS_COMMON_SIMD_MULTIPLY_INL_H_
#else
#define RIDGELINE_KERNELS_COMMON_SIMD_MULTIPLY_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// C takes 24 of 32 registers, or 12 of 16: enough sums in flight to hide the latency of a multiply-add, and none spills.
inline constexpr bool kHas32Registers = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON;
inline constexpr std::int64_t kTileRows = kHas32Registers ? 8 : 4;
inline constexpr std::int64_t kTileVectors = 3;

struct Broadcast {  // X
  const float* data;
  std::int64_t row_stride;
  std::int64_t step_stride;
};

struct Packed {  // Y
  const float* data;
  std::int64_t step_stride;
};

struct Accumulated {  // C
  float* data;
  std::int64_t row_stride;
};

// What becomes of C's old value.
enum class Update {
  kOverwrite,  // C = XY, the old value is not read
  kAdd,        // C += XY
  kScaleAdd,   // C = C * factor + XY, one factor a lane
};

template <Update kUpdate, std::int64_t kVectors, class D>
HWY_INLINE void MultiplyTile(D d, std::int64_t steps, Broadcast x, Packed y, Accumulated c, const float* factors) {
  using V = hn::Vec<D>;
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  V sum[kTileRows][kVectors];
  HWY_UNROLL(8)
  for (auto& row : sum) {
    HWY_UNROLL(3)
    for (V& v : row) v = hn::Zero(d);
  }

  for (std::int64_t s = 0; s < steps; ++s) {
    V lanes[kVectors];
    HWY_UNROLL(3)
    for (std::int64_t v = 0; v < kVectors; ++v) lanes[v] = hn::LoadU(d, y.data + v * kLanes);
    HWY_UNROLL(8)
    for (std::int64_t u = 0; u < kTileRows; ++u) {
      const V element = hn::Set(d, x.data[u * x.row_stride]);
      HWY_UNROLL(3)
      for (std::int64_t v = 0; v < kVectors; ++v) sum[u][v] = hn::MulAdd(element, lanes[v], sum[u][v]);
    }
    x.data += x.step_stride;
    y.data += y.step_stride;
  }

  HWY_UNROLL(8)
  for (std::int64_t u = 0; u < kTileRows; ++u) {
    HWY_UNROLL(3)
    for (std::int64_t v = 0; v < kVectors; ++v) {
      float* to = c.data + u * c.row_stride + v * kLanes;
      V result = sum[u][v];
      if constexpr (kUpdate == Update::kAdd) result = hn::Add(hn::LoadU(d, to), result);
      if constexpr (kUpdate == Update::kScaleAdd) {
        result = hn::MulAdd(hn::LoadU(d, to), hn::LoadU(d, factors + v * kLanes), result);
      }
      hn::StoreU(result, d, to);
    }
  }
}

// All rows of X, `rows` a multiple of kTileRows, against one panel of Y that is `vectors` registers wide. Calls before_tile()
// before each tile.
template <Update kUpdate, class D, typename BeforeTile>
HWY_INLINE void MultiplyPanel(D d, std::int64_t rows, std::int64_t vectors, std::int64_t steps, Broadcast x, Packed y,
                              Accumulated c, const float* factors, const BeforeTile& before_tile) {
  for (std::int64_t u = 0; u < rows; u += kTileRows) {
    before_tile();
    const Broadcast x_rows = {x.data + u * x.row_stride, x.row_stride, x.step_stride};
    const Accumulated c_rows = {c.data + u * c.row_stride, c.row_stride};
    switch (vectors) {
      case 1:
        MultiplyTile<kUpdate, 1>(d, steps, x_rows, y, c_rows, factors);
        break;
      case 2:
        MultiplyTile<kUpdate, 2>(d, steps, x_rows, y, c_rows, factors);
        break;
      default:
        MultiplyTile<kUpdate, 3>(d, steps, x_rows, y, c_rows, factors);
    }
  }
}

}  // namespace ridgeline::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RIDGELINE_KERNELS_COMMON_SIMD_MULTIPLY_INL_H_
