// The bias of a block in the layout of a thread's scores, read ahead of the products it is added to.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/prefill_sm90/prefill_arguments.h"
#include "kernels/attention/prefill_sm90/prefill_traits.cuh"

namespace ridgeline::kernels::attention {

// Two rows, eight apart, of columns 8i and 8i + 1 from the thread's first on.
template <int kScores>
class BiasFragment {
  static constexpr int kTileKeys = 2 * kScores;

 public:
  // `first_row`: the thread's first in the tile; `first_key`: of its first column, in the sequence. Rows beyond the tile's last
  // get its bias: they have none.
  __device__ __forceinline__ void Load(const PrefillArguments& arguments, const PrefillTile& tile, int first_row,
                                       int first_key) {
    const AttentionParams& params = arguments.params;
    const int last_row = tile.num_rows - 1, row = min(first_row, last_row);
    const float* const first = params.bias + tile.sequence_idx * params.bias_sequence_stride_elems +
                               tile.query_head * params.bias_head_stride_elems +
                               (tile.row_begin + row) * params.bias_row_stride_elems + first_key;
    const float* const rows[2] = {first, first + (min(first_row + 8, last_row) - row) * params.bias_row_stride_elems};
    const int keys = tile.key_tokens - first_key;
    if (arguments.logits.bias_in_pairs && __all_sync(0xffffffff, keys >= kTileKeys - 6)) {
#pragma unroll
      for (int i = 0; i < kScores; i += 2) LoadPair(rows[i / 2 % 2] + i / 4 * 8, loaded_[i], loaded_[i + 1]);
    } else {
#pragma unroll
      for (int i = 0; i < kScores; ++i) {
        const int key = i / 4 * 8 + i % 2;
        loaded_[i] = LoadOne(rows[i / 2 % 2] + key, key < keys);
      }
    }
  }

  // A bias of -inf hides its key, whatever the product is.
  __device__ __forceinline__ void AddTo(float (&scores)[kScores], float factor) const {
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      scores[i] = loaded_[i] == -INFINITY ? -INFINITY : fmaf(scores[i], factor, loaded_[i]);
    }
  }

 private:
  // In place, so that it is on its way before the products are. Nobody on this multiprocessor reads it again.
  __device__ static __forceinline__ void LoadPair(const float* pair, float& first, float& second) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.f32 {%0, %1}, [%2];" : "=f"(first), "=f"(second) : "l"(pair));
  }
  // 0 where there is no key, which is hidden later.
  __device__ static __forceinline__ float LoadOne(const float* element, bool exists) {
    float loaded = 0;
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p ld.global.nc.L1::no_allocate.L2::128B.f32 %0, [%1];\n}\n"
                 : "+f"(loaded)
                 : "l"(element), "r"(static_cast<int>(exists)));
    return loaded;
  }

  float loaded_[kScores];
};

}  // namespace ridgeline::kernels::attention
