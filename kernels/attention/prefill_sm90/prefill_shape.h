// Which shapes the Hopper prefill kernel is built for. Shared by the plan, the dispatch and the kernel.
#pragma once

#include <cstdint>
#include <iterator>
#include <numeric>

#include "kernels/attention/attention.h"

namespace ridgeline::kernels::attention {

// What turns products into logits, besides a positive scale: attention.h has the formula. One instantiation each.
enum class LogitOption {
  kNone,
  kSoftCap,
  kAlibi,
  kAny,  // all there are, looked up at run time: the bias, several at once, any scale
};
inline constexpr int kNumLogitOptions = 4;

// Tiles of one build. README.md, "Sizes", has what chose them.
struct PrefillShape {
  int head_dim;               // columns of queries and keys, as padded with zeros
  int value_head_dim;         // of values and outputs
  int tile_keys;              // keys of a block
  int consumers;              // warpgroups that compute, with 64 query rows each
  int stages;                 // blocks of keys or values in the ring
  int query_buffers;          // tiles whose queries, or outputs, lie in shared memory at once
  int early_weights = 0;      // of a thread's, computed while P·V of the block before still runs; even
  bool begins_early = false;  // a tile's first weights are computed while the last P·V of the one before runs
  int any_tile_keys = 64;     // keys of a block for LogitOption::kAny: a bias on its way needs registers
  int any_early_weights = 0;  // likewise early_weights
  int cap_early_weights = 0;  // likewise for a soft cap; 0: early_weights

  constexpr int TileRows() const { return 64 * consumers; }
  constexpr int TileKeys(LogitOption option) const { return option == LogitOption::kAny ? any_tile_keys : tile_keys; }
  constexpr int EarlyWeights(LogitOption option) const {
    if (option == LogitOption::kAny) return any_early_weights;
    return option == LogitOption::kSoftCap && cap_early_weights > 0 ? cap_early_weights : early_weights;
  }
};

inline constexpr PrefillShape kPrefillShapes[] = {
    {.head_dim = 64,
     .value_head_dim = 64,
     .tile_keys = 128,
     .consumers = 3,
     .stages = 6,
     .query_buffers = 3,
     .any_tile_keys = 32},
    {.head_dim = 64,
     .value_head_dim = 64,
     .tile_keys = 64,
     .consumers = 4,
     .stages = 8,
     .query_buffers = 3,
     .any_tile_keys = 32},
    {.head_dim = 64,
     .value_head_dim = 64,
     .tile_keys = 128,
     .consumers = 2,
     .stages = 6,
     .query_buffers = 3,
     .early_weights = 24,
     .begins_early = true},
    {.head_dim = 96,
     .value_head_dim = 96,
     .tile_keys = 128,
     .consumers = 2,
     .stages = 4,
     .query_buffers = 3,
     .early_weights = 24,
     .begins_early = true},
    {.head_dim = 128,
     .value_head_dim = 128,
     .tile_keys = 128,
     .consumers = 2,
     .stages = 4,
     .query_buffers = 3,
     .early_weights = 24,
     .begins_early = true},
    {.head_dim = 192,
     .value_head_dim = 128,
     .tile_keys = 112,
     .consumers = 2,
     .stages = 4,
     .query_buffers = 1,
     .early_weights = 16},
    {.head_dim = 192,
     .value_head_dim = 192,
     .tile_keys = 112,
     .consumers = 2,
     .stages = 4,
     .query_buffers = 1,
     .early_weights = 16},
    {.head_dim = 256,
     .value_head_dim = 256,
     .tile_keys = 80,
     .consumers = 2,
     .stages = 4,
     .query_buffers = 1,
     .early_weights = 8,
     .any_tile_keys = 32,
     .any_early_weights = 8,
     .cap_early_weights = 16},
};
inline constexpr int kNumPrefillShapes = static_cast<int>(std::size(kPrefillShapes));

// Rows of one tensor copy of keys or values: a block's, or what of it lies in one page for sure.
constexpr int CopyKeys(const AttentionShape& shape, int tile_keys) {
  return shape.IsPaged() ? static_cast<int>(std::gcd(shape.page_tokens, std::int64_t{tile_keys})) : tile_keys;
}

// By what they are for.
inline constexpr int kPrefill64Long = 0, kPrefill64 = 1, kPrefill64Small = 2, kPrefill96 = 3, kPrefill128 = 4,
                     kPrefill192To128 = 5, kPrefill192 = 6, kPrefill256 = 7;

}  // namespace ridgeline::kernels::attention
