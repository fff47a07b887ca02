// Brings tiles of keys and values from pages, or from where they lie densely, to a warp's ring, by cp.async.
//
//   gmem page p: [page_tokens, Hkv, D] ──16 keys of one head──► smem slot: 16 rows of K, 16 rows of V
//
// Chunks of 16 bytes lie swizzled in a row, so that ldmatrix meets no bank twice. Keys that no query sees are not read, nor
// are columns past head_dim; they become zeros.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/decode/decode_arguments.h"
#include "kernels/attention/decode/decode_cache.cuh"
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
                        int team_warps, std::uint32_t ring, const TileCachePolicy& policies)
      : arguments_(arguments),
        share_(share),
        unit_(first),
        team_(team),
        place_(warp_in_team - team_warps),
        team_warps_(team_warps),
        policies_(policies),
        in_whole_pages_(arguments.schedule.page_tokens.divisor() % Traits::kTileKeys == 0) {
    const int lane = Traits::lane();
    row_ = lane / kRowLanes;
    chunk_ = lane % kRowLanes;
    destination_ = ring + static_cast<std::uint32_t>(Layout::ChunkOffset(row_, chunk_));
  }

  // Starts the copy of the warp's next tile, if there is one, to the slot at `slot_offset` of the ring; the first call only
  // looks up where that tile is.
  __device__ __forceinline__ void LoadNext(std::uint32_t slot_offset) {
    if (place_ >= 0 && place_ < share_.tiles) {
      if (in_whole_pages_) [[likely]] {
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
  static_assert(kRowPasses * kPassRows == Traits::kTileKeys, "passes make a whole tile");

  // Looks up, one tile ahead, the page in which the lane's row of the next tile lies; of whole pages, the tile's first row.
  __device__ __forceinline__ void FindPage() {
    while (place_ >= unit_.end()) MoveToNext<Traits::kHasOptions>(unit_, arguments_.params, share_);
    int key = unit_.KeyAt(place_);
    policy_ = policies_.Of(key);
    if (arguments_.params.block_table == nullptr) return FindDenseRow(key);
    if (!in_whole_pages_) key += Traits::lane() % Traits::kTileKeys;
    const int seen_key = Traits::kHasOptions ? max(key, unit_.keys.begin) : key;
    const int page_idx = static_cast<int>(arguments_.schedule.page_tokens.Quotient(seen_key));
    in_page_ = key - page_idx * PageTokens();
    page_ = seen_key < unit_.keys.end ? __ldg(arguments_.params.block_table + unit_.keys.table_begin + page_idx) : 0;
  }

  // Dense rows follow each other as if in pages in order, so a row's place in its page may pass the page's end.
  __device__ __forceinline__ void FindDenseRow(int key) {
    const auto row = static_cast<std::uint64_t>(unit_.keys.table_begin + key);
    page_ = static_cast<int>(row / kDecodeTileKeys);
    in_page_ = static_cast<int>(row % kDecodeTileKeys);
  }

  __device__ int PageTokens() const { return static_cast<int>(arguments_.schedule.page_tokens.divisor()); }

  // Bytes from one key to the next, in keys and in values.
  __device__ int Stride(std::int64_t columns) const {
    return static_cast<int>(arguments_.params.shape.kv_heads) * static_cast<int>(columns) * 2;
  }

  // Bytes from a key's begin to the lane's chunk.
  __device__ int InKey(std::int64_t columns) const {
    return ((unit_.head_group << share_.heads_log2) + team_) * static_cast<int>(columns) * 2 + chunk_ * 16;
  }

  // Where the lane's chunk of a key lies, in keys or in values.
  __device__ const char* Chunk(const void* base, int page, int in_page, std::int64_t columns) const {
    const int stride = Stride(columns);
    return static_cast<const char*>(base) + std::int64_t{page} * (PageTokens() * stride) + (in_page * stride + InKey(columns));
  }

  __device__ __forceinline__ void LoadFromOnePage(std::uint32_t slot_offset) const {
    const AttentionParams& params = arguments_.params;
    const char* key = Chunk(params.key, page_, in_page_ + row_, params.shape.head_dim);
    const char* value = Chunk(params.value, page_, in_page_ + row_, params.shape.value_head_dim);
    const int key_step = kPassRows * Stride(params.shape.head_dim),
              value_step = kPassRows * Stride(params.shape.value_head_dim);
    const int first_key = unit_.KeyAt(place_) + row_;
#pragma unroll
    for (int i = 0; i < kRowPasses; ++i) {
      CopyRow(slot_offset, i, key, value, first_key);
      key += key_step;
      value += value_step;
    }
  }

  // Rare, and small rather than fast: the other way's code is not to be far away.
  __device__ __forceinline__ void LoadFromPages(std::uint32_t slot_offset) const {
    const AttentionParams& params = arguments_.params;
    const int first_key = unit_.KeyAt(place_) + row_;
#pragma unroll 1
    for (int i = 0; i < kRowPasses; ++i) {
      const int page = __shfl_sync(kAllLanes, page_, i * kPassRows + row_);
      const int in_page = __shfl_sync(kAllLanes, in_page_, i * kPassRows + row_);
      CopyRow(slot_offset, i, Chunk(params.key, page, in_page, params.shape.head_dim),
              Chunk(params.value, page, in_page, params.shape.value_head_dim), first_key);
    }
  }

  // The lane's chunks of one row. `first_key` is the key of the lane's row of pass 0.
  __device__ __forceinline__ void CopyRow(std::uint32_t slot_offset, int pass, const char* key, const char* value,
                                          int first_key) const {
    // Slots and whole rows of the swizzle's width leave its bits of an address alone.
    const int row = pass * kPassRows;
    const std::uint32_t to = ((destination_ + slot_offset) ^ static_cast<std::uint32_t>(Layout::SwizzleOf(row) << 4)) +
                             static_cast<std::uint32_t>(row * Traits::kRowBytes);
#pragma unroll
    for (int j = 0; j < kChunkPasses; ++j) {
      const int offset = j * kRowLanes * 16;
      CpAsync16(to + offset, key + offset, Sees(first_key, row, j, arguments_.params.shape.head_dim), policy_);
      CpAsync16(to + offset + Traits::kTileBytes, value + offset,
                Sees(first_key, row, j, arguments_.params.shape.value_head_dim), policy_);
    }
  }

  // Whether a query sees the key `row` after first_key, and the lane's chunk of a pass is of its columns.
  __device__ __forceinline__ bool Sees(int first_key, int row, int chunk_pass, std::int64_t columns) const {
    const int end = (chunk_ + chunk_pass * kRowLanes) * 8 < static_cast<int>(columns) ? unit_.keys.end - first_key : 0;
    return row < end && (!Traits::kHasOptions || row >= unit_.keys.begin - first_key);
  }

  const DecodeArguments& arguments_;
  const Share& share_;
  Unit unit_;  // of the next tile
  const int team_;
  int place_;  // of the next tile in the share; negative before the first call
  const int team_warps_;
  const TileCachePolicy& policies_;
  const bool in_whole_pages_;
  std::uint64_t policy_ = 0;
  int row_;    // of the first pass
  int chunk_;  // of the first pass
  int page_ = 0;
  int in_page_ = 0;            // place of the looked up row in its page
  std::uint32_t destination_;  // of the lane's first chunk in the first pass, in the ring's first slot
};

}  // namespace ridgeline::kernels::attention
