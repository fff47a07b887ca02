// The walk over blocks of keys and values, from the last to the first, and their copies to shared memory. Keys are copied half
// a step ahead of values, so each tensor has its own place in the walk.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/flash/flash_arguments.h"
#include "kernels/attention/flash/tile_facts.cuh"
#include "kernels/common/shared_memory.cuh"

namespace ridgeline::kernels::attention {

// Tokens that lie one after the other: a thread goes from block to block with one subtraction.
template <typename Traits>
class ContiguousBlocks {
  using T = typename Traits::T;
  using Tile = typename Traits::KeyTile;

 public:
  // At the walk's last block.
  __device__ ContiguousBlocks(const FlashArguments& arguments, const TilePlace& place, typename Traits::SharedStorage&)
      : arguments_(arguments) {
    const AttentionShape& shape = arguments.params.shape;
    const std::int64_t key_idx = std::int64_t{place.block_begin + place.num_blocks - 1} * Traits::kTileKeys;
    const std::int64_t row = (place.sequence.key_begin + key_idx) * shape.kv_heads + place.kv_head;
    key_source_ =
        Tile::ThreadSource(static_cast<const T*>(arguments.params.key) + row * shape.head_dim, shape.kv_heads * shape.head_dim);
    value_source_ = Tile::ThreadSource(static_cast<const T*>(arguments.params.value) + row * shape.value_head_dim,
                                       shape.kv_heads * shape.value_head_dim);
  }

  // Copies the keys of the next block; the same for values. Those beyond num_keys become zero.
  __device__ __forceinline__ void CopyKeys(const Tile& tile, int /*block*/, int num_keys) {
    tile.CopyFrom(key_source_, arguments_.key_strides.pass_elems, num_keys, HeadDim(arguments_.params.shape.head_dim));
    key_source_ -= arguments_.key_strides.block_elems;
  }
  __device__ __forceinline__ void CopyValues(const Tile& tile, int /*block*/, int num_keys) {
    tile.CopyFrom(value_source_, arguments_.value_strides.pass_elems, num_keys,
                  HeadDim(arguments_.params.shape.value_head_dim));
    value_source_ -= arguments_.value_strides.block_elems;
  }

 private:
  __device__ static int HeadDim(std::int64_t head_dim) { return static_cast<int>(head_dim); }

  const FlashArguments& arguments_;
  const T* key_source_;
  const T* value_source_;
};

// Tokens that lie anywhere, as those of a sequence in pages do. Where each key of a block lies is looked up once, a step before
// it is needed, and kept in shared memory: for two blocks, since values follow half a step behind keys.
template <typename Traits>
class GatheredBlocks {
  using T = typename Traits::T;
  using Tile = typename Traits::KeyTile;

 public:
  // Waits for the facts.
  __device__ GatheredBlocks(const FlashArguments& arguments, const TilePlace& place, typename Traits::SharedStorage& shared)
      : arguments_(arguments), facts_(shared.facts), key_token_(shared.key_token) {
    const AttentionParams& params = arguments.params;
    key_source_ = Tile::ThreadSource(static_cast<const T*>(params.key) + place.kv_head * params.shape.head_dim, 0);
    value_source_ = Tile::ThreadSource(static_cast<const T*>(params.value) + place.kv_head * params.shape.value_head_dim, 0);
    __syncthreads();
    Keep(place.num_blocks - 1, Find(place.num_blocks - 1));
    __syncthreads();
  }

  // Where this thread's key of a block lies, for Keep. No key, or one that does not exist: at 0.
  __device__ std::uint32_t Find(int block) const {
    const TilePlace& place = facts_.place;
    const int key_idx = (place.block_begin + block) * Traits::kTileKeys + static_cast<int>(threadIdx.x);
    const bool exists = threadIdx.x < Traits::kTileKeys && key_idx < static_cast<int>(place.sequence.key_tokens);
    return exists ? static_cast<std::uint32_t>(KeyToken(arguments_, place.sequence, key_idx)) : 0;
  }
  // After a synchronisation the block can be copied.
  __device__ void Keep(int block, std::uint32_t token) const {
    const auto row = static_cast<int>(threadIdx.x);
    if (row < Traits::kTileKeys) {
      key_token_[block & 1][row % Tile::kPassRows * Tile::kPasses + row / Tile::kPassRows] = token;
    }
  }

  __device__ __forceinline__ void CopyKeys(const Tile& tile, int block, int num_keys) const {
    Copy(tile, key_source_, arguments_.key_strides, arguments_.params.shape.head_dim, block, num_keys);
  }
  __device__ __forceinline__ void CopyValues(const Tile& tile, int block, int num_keys) const {
    Copy(tile, value_source_, arguments_.value_strides, arguments_.params.shape.value_head_dim, block, num_keys);
  }

 private:
  __device__ __forceinline__ void Copy(const Tile& tile, const T* source, const FlashArguments::Strides& strides,
                                       std::int64_t columns, int block, int num_keys) const {
    std::uint32_t token[Tile::kPasses];
#pragma unroll
    for (int i = 0; i < Tile::kPasses; i += 4) {
      const uint4 tokens = LoadShared16(SharedAddress(&key_token_[block & 1][Tile::RowOf(0) * Tile::kPasses + i]));
      token[i] = tokens.x;
      token[i + 1] = tokens.y;
      token[i + 2] = tokens.z;
      token[i + 3] = tokens.w;
    }
    tile.CopyPasses(num_keys, static_cast<int>(columns),
                    [&](int pass) { return source + std::uint64_t{token[pass]} * strides.token_elems; });
  }

  const FlashArguments& arguments_;
  const typename Traits::Facts& facts_;
  std::uint32_t (&key_token_)[2][Traits::kTileKeys];  // rows of one thread's copies side by side
  const T* key_source_;
  const T* value_source_;
};

}  // namespace ridgeline::kernels::attention
