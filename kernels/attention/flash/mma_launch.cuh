// The definition behind mma_launch.h, for the files of inst/.
#pragma once

#include <cstdint>

#include "kernels/attention/flash/mma_kernel.cuh"
#include "kernels/attention/flash/mma_launch.h"
#include "kernels/attention/flash/mma_shape.h"
#include "kernels/common/cuda_launch.cuh"

namespace ridgeline::kernels::attention {

template <typename T, int kHeadDim, MmaVariant kVariant>
cudaError_t LaunchMma(const FlashArguments& arguments, cudaStream_t stream) {
  constexpr MmaShape kShape = MmaShapeOf(kHeadDim);
  using Traits = MmaTraits<T, kHeadDim, kShape.tile_rows, kShape.tile_keys, kVariant == MmaVariant::kGeneral,
                           kVariant != MmaVariant::kPlain>;
  const auto strides_of = [&](std::int64_t head_dim) {
    const std::int64_t token_elems = arguments.params.shape.kv_heads * head_dim;
    return FlashArguments::Strides{.token_elems = static_cast<std::uint32_t>(token_elems),
                                   .pass_elems = Traits::KeyTile::kPassRows * token_elems,
                                   .block_elems = Traits::kTileKeys * token_elems};
  };
  FlashArguments with_strides = arguments;
  with_strides.key_strides = strides_of(arguments.params.shape.head_dim);
  with_strides.value_strides = strides_of(arguments.params.shape.value_head_dim);
  const LaunchShape launch = {.grid = dim3(static_cast<unsigned>(arguments.schedule.NumBlocks())),
                              .block = dim3(Traits::kThreads),
                              .shared_memory_bytes = sizeof(typename Traits::SharedStorage)};
  return Launch(MmaAttentionKernel<Traits>, launch, stream, with_strides);
}

}  // namespace ridgeline::kernels::attention
