// The role of the thread that stores outputs: a tile's output lies where its queries did; when it has gone, the buffer is free
// for the next queries. Consumers never wait for a store.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/prefill_sm90/prefill_arguments.h"
#include "kernels/attention/prefill_sm90/prefill_traits.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/tensor_copy.cuh"

namespace ridgeline::kernels::attention {

// Whether the copy engine stores the output of a warpgroup's rows. It writes all 64 of them, and one type; consumers store the
// others themselves.
template <typename Traits>
__device__ __forceinline__ bool IsStoredInBulk(const AttentionShape& shape, int num_rows, int consumer) {
  return num_rows >= (consumer + 1) * Traits::kGroupRows && shape.output_data_type == shape.data_type;
}

template <typename Traits>
class OutputStorer {
  using Shared = typename Traits::SharedStorage;

 public:
  __device__ OutputStorer(const PrefillArguments& arguments, Shared& shared) : arguments_(arguments), shared_(shared) {}

  // By a single thread.
  __device__ __forceinline__ void Run() const {
    RingPlace<Traits::kQueryBuffers> buffer;
    while (true) {
      MBarrierWaitAtEase(BarrierAt(shared_.query_full, buffer.idx), buffer.parity);
      const PrefillTile& tile = shared_.tiles[buffer.idx];
      if (tile.num_rows == 0) return;
      MBarrierWaitAtEase(BarrierAt(shared_.output_full, buffer.idx), buffer.parity);
      Store(tile, SharedAddress(shared_.query) + buffer.idx * Traits::kQueryBytes);
      TensorStoreCommit();
      TensorStoreWaitRead();
      MBarrierArrive(BarrierAt(shared_.query_empty, buffer.idx));
      buffer.Advance();
    }
  }

 private:
  __device__ __forceinline__ void Store(const PrefillTile& tile, std::uint32_t source) const {
    const AttentionShape& shape = arguments_.params.shape;
    for (int consumer = 0; consumer < Traits::kConsumers; ++consumer) {
      if (!IsStoredInBulk<Traits>(shape, tile.num_rows, consumer)) break;
#pragma unroll
      for (int chunk = 0; chunk < Traits::kValueChunks; ++chunk) {
        if (chunk * 64 >= static_cast<int>(shape.value_head_dim)) break;
        TensorStore(&arguments_.output, source + chunk * Traits::kQueryChunkBytes + consumer * Traits::kGroupBytes,
                    {chunk * 64, tile.query_head, tile.query_token + consumer * Traits::kGroupRows, 0});
      }
    }
  }

  const PrefillArguments& arguments_;
  Shared& shared_;
};

}  // namespace ridgeline::kernels::attention
