// Brings tiles of keys and values from pages to a warp's ring, by cp.async.
//
//   gmem page p: [page_tokens, Hkv, D] ──16 keys of one head──► smem slot: 16 rows of K, 16 rows of V
//
// Chunks of 16 bytes lie swizzled in a row, so that ldmatrix meets no bank twice. Keys that no query sees are not read, nor
// are columns past head_dim; they become zeros.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/decode/decode_arguments.h"
#include "kernels/attention/decode/decode_walk.cuh"
#include "kernels/common/cp_async.cuh"

namespace ridgeline::kernels::attention {

constexpr int LargestPowerOfTwoIn(int number, int most) {
  int power = 1;
  while (power < most && number % (2 * power) == 0) power *= 2;
  return power;
}

// Where the chunks of a tile's row lie.
template <int kHeadDim>
struct TileLayout {
  static constexpr int kRowBytes = kHeadDim * 2;
  static constexpr int kChunks = kHeadDim / 8;
  // Of the eight 16-byte columns of banks a row shifts so many, depending on its number.
  static constexpr int kSwizzle = LargestPowerOfTwoIn(kChunks, 8);

  __device__ static constexpr int SwizzleOf(int row) { return row / (8 / kSwizzle) % kSwizzle; }
  __device__ static constexpr int ChunkOffset(int row, int chunk) { return row * kRowBytes + ((chunk ^ SwizzleOf(row)) << 4); }
};

template <typename Traits>
class TileLoader {
  using Layout = TileLayout<Traits::kHeadDim>;

 public:
  // `first` is where the team's share begins; the warp takes every num_warps-th tile from `warp_in_team` on. Ring slots begin
  // at the shared address `ring`.
  __device__ TileLoader(const DecodeArguments& arguments, const Share& share, const Unit& first, int team, int warp_in_team,
                        int team_warps, std::uint32_t ring, std::uint64_t policy)
      : arguments_(arguments),
        share_(share),
        unit_(first),
        team_(team),
        place_(warp_in_team - team_warps),
        team_warps_(team_warps),
        policy_(policy),
        in_whole_pages_(arguments.schedule.page_tokens.divisor() % Traits::kTileKeys == 0) {
    const int lane = Traits::lane();
    row_ = lane / kRowLanes;
    chunk_ = lane % kRowLanes;
#pragma unroll
    for (int i = 0; i < kOffsets; ++i) {
      destination_[i] = ring + static_cast<std::uint32_t>(Layout::ChunkOffset(i * kPassRows + row_, chunk_));
    }
  }

  // Starts the copy of the warp's next tile, if there is one, to the slot at `slot_offset` of the ring; the first call only
  // looks up where that tile is.
  __device__ __forceinline__ void LoadNext(std::uint32_t slot_offset) {
    if (place_ >= 0 && place_ < share_.tiles) {
      if (in_whole_pages_) {
        LoadFromOnePage(slot_offset);
      } else {
        LoadFromPages(slot_offset);
      }
    }
    place_ += team_warps_;
    if (place_ < share_.tiles) FindPage();
  }

 private:
  // A pass of the warp copies kPassRows rows, kRowLanes chunks of each.
  static constexpr int kRowLanes = LargestPowerOfTwoIn(Layout::kChunks, 32);
  static constexpr int kPassRows = 32 / kRowLanes;
  static constexpr int kRowPasses = Traits::kTileKeys / kPassRows;
  static constexpr int kChunkPasses = Layout::kChunks / kRowLanes;
  // Rows eight apart are swizzled alike.
  static constexpr int kOffsets = kPassRows < 8 ? 8 / kPassRows : 1;
  static_assert(kRowPasses * kPassRows == Traits::kTileKeys, "passes make a whole tile");

  // Looks up, one tile ahead, the page in which the lane's row of the next tile lies.
  __device__ __forceinline__ void FindPage() {
    while (place_ >= unit_.end()) MoveToNext<Traits::kHasOptions>(unit_, arguments_.params, share_);
    int key = unit_.KeyAt(place_);
    if (!in_whole_pages_) key += Traits::lane() % Traits::kTileKeys;
    if (Traits::kHasOptions) key = max(key, unit_.keys.begin);
    const int page_idx = static_cast<int>(arguments_.schedule.page_tokens.Quotient(key));
    page_ = key < unit_.keys.end ? __ldg(arguments_.params.block_table + unit_.keys.table_begin + page_idx) : 0;
  }

  // Bytes from one key to the next, in keys and in values.
  __device__ int KeyStride() const { return Stride(arguments_.params.shape.head_dim); }
  __device__ int ValueStride() const { return Stride(arguments_.params.shape.value_head_dim); }
  __device__ int Stride(std::int64_t columns) const {
    return static_cast<int>(arguments_.params.shape.kv_heads) * static_cast<int>(columns) * 2;
  }

  // Bytes from a key's begin to the lane's chunk.
  __device__ int InKey(std::int64_t columns) const {
    return ((unit_.head_group << share_.heads_log2) + team_) * static_cast<int>(columns) * 2 + chunk_ * 16;
  }

  __device__ __forceinline__ void LoadFromOnePage(std::uint32_t slot_offset) const {
    const AttentionParams& params = arguments_.params;
    const int page_tokens = static_cast<int>(arguments_.schedule.page_tokens.divisor());
    const int first_key = unit_.KeyAt(place_);
    const int in_page = first_key - static_cast<int>(arguments_.schedule.page_tokens.Quotient(first_key)) * page_tokens + row_;
    const int key_stride = KeyStride(), value_stride = ValueStride();
    const char* key = static_cast<const char*>(params.key) + std::int64_t{page_} * (page_tokens * key_stride) +
                      (in_page * key_stride + InKey(params.shape.head_dim));
    const char* value = static_cast<const char*>(params.value) + std::int64_t{page_} * (page_tokens * value_stride) +
                        (in_page * value_stride + InKey(params.shape.value_head_dim));
#pragma unroll
    for (int i = 0; i < kRowPasses; ++i) {
      CopyRow(slot_offset, i, key, value, first_key + i * kPassRows + row_);
      key += kPassRows * key_stride;
      value += kPassRows * value_stride;
    }
  }

  __device__ __forceinline__ void LoadFromPages(std::uint32_t slot_offset) const {
    const AttentionParams& params = arguments_.params;
    const int page_tokens = static_cast<int>(arguments_.schedule.page_tokens.divisor());
    const int first_key = unit_.KeyAt(place_);
    const int key_stride = KeyStride(), value_stride = ValueStride();
    const char* const key = static_cast<const char*>(params.key) + InKey(params.shape.head_dim);
    const char* const value = static_cast<const char*>(params.value) + InKey(params.shape.value_head_dim);
#pragma unroll
    for (int i = 0; i < kRowPasses; ++i) {
      const int row = i * kPassRows + row_;
      const int page = __shfl_sync(kAllLanes, page_, row);
      const int in_page =
          first_key + row - static_cast<int>(arguments_.schedule.page_tokens.Quotient(first_key + row)) * page_tokens;
      CopyRow(slot_offset, i, key + std::int64_t{page} * (page_tokens * key_stride) + in_page * key_stride,
              value + std::int64_t{page} * (page_tokens * value_stride) + in_page * value_stride, first_key + row);
    }
  }

  // The lane's chunks of one row, of key `key_idx`.
  __device__ __forceinline__ void CopyRow(std::uint32_t slot_offset, int pass, const char* key, const char* value,
                                          int key_idx) const {
    const std::uint32_t to = destination_[pass % kOffsets] + slot_offset +
                             static_cast<std::uint32_t>(pass / kOffsets * kOffsets * kPassRows * Traits::kRowBytes);
#pragma unroll
    for (int j = 0; j < kChunkPasses; ++j) {
      const int offset = j * kRowLanes * 16;
      CpAsync16(to + offset, key + offset, Sees(key_idx, j, arguments_.params.shape.head_dim), policy_);
      CpAsync16(to + offset + Traits::kTileBytes, value + offset, Sees(key_idx, j, arguments_.params.shape.value_head_dim),
                policy_);
    }
  }

  // Whether a query sees the key, and the lane's chunk of a pass is of its columns.
  __device__ __forceinline__ bool Sees(int key_idx, int chunk_pass, std::int64_t columns) const {
    const int end = (chunk_ + chunk_pass * kRowLanes) * 8 < static_cast<int>(columns) ? unit_.keys.end : 0;
    return key_idx < end && (!Traits::kHasOptions || key_idx >= unit_.keys.begin);
  }

  const DecodeArguments& arguments_;
  const Share& share_;
  Unit unit_;  // of the next tile
  const int team_;
  int place_;  // of the next tile in the share; negative before the first call
  const int team_warps_;
  const std::uint64_t policy_;
  const bool in_whole_pages_;
  int row_;    // of the first pass
  int chunk_;  // of the first pass
  int page_ = 0;
  std::uint32_t destination_[kOffsets];  // of the lane's first chunk in pass i, in the ring's first slot
};

}  // namespace ridgeline::kernels::attention
