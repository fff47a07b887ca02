// The role of the warp that loads keys and values into the ring, in the order in which consumers take them:
//
//   K last │ K last-1, V last │ K last-2, V last-1 │ ... │ K first, V first+1 │ K of the next tile, V first
//
// so that a tile's last product with values can run beside the next one's first with keys. Without overlap V first comes
// before.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/prefill_sm90/prefill_arguments.h"
#include "kernels/attention/prefill_sm90/prefill_traits.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/tensor_copy.cuh"

namespace ridgeline::kernels::attention {

template <typename Traits>
class RingLoader {
  using Shared = typename Traits::SharedStorage;
  static constexpr unsigned kAllLanes = 0xffffffff;
  static constexpr int kTileKeys = Traits::kTileKeys;

 public:
  __device__ RingLoader(const PrefillArguments& arguments, Shared& shared) : arguments_(arguments), shared_(shared) {}

  // By a whole warp: where a block lies in many pieces, each lane loads one.
  __device__ __forceinline__ void Run() {
    if (arguments_.params.block_table == nullptr) {
      if (lane() == 0) Walk<kDense>();
    } else if (Pieces() == 1) {
      if (lane() == 0) Walk<1>();
    } else if (Pieces() == 2) {
      if (lane() == 0) Walk<2>();
    } else {
      Walk<kManyPieces>();
    }
  }

 private:
  // In how many pages a block lies at most, in place of 1 or 2.
  static constexpr int kDense = 0, kManyPieces = -1;

  // Blocks of a tile that are still to be loaded, from the last down.
  struct Blocks {
    int next = 0;
    int left = 0;
    int kv_head = 0;
    int key_tokens = 0;          // of the sequence
    std::int64_t key_begin = 0;  // first token, or the sequence's first entry in the block table
  };

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  template <int kPieces>
  __device__ __forceinline__ void Walk() {
    RingPlace<Traits::kQueryBuffers> buffer;
    Blocks keys, values;  // values are those of the keys before
    for (bool has_more = true; has_more || values.left > 0;) {
      if (keys.left == 0 && has_more && (Traits::kOverlapsTiles || values.left == 0)) {
        has_more = NextTile(buffer, keys);
        if constexpr (kPieces == kManyPieces) {
          if (has_more) BeginPages(keys);
        }
      }
      if (has_more) WantNext(keys);
      if (keys.left > 0) Load<kPieces, /*kIsValue=*/false>(keys);
      if (values.left > 0) Load<kPieces, /*kIsValue=*/true>(values);
      values = keys;
      value_page_ = key_page_;
      if (keys.left > 0) {
        --keys.left;
        --keys.next;
      }
    }
  }

  template <int kPieces, bool kIsValue>
  __device__ __forceinline__ void Load(const Blocks& blocks) {
    if constexpr (kPieces == kDense) {
      LoadDense<kIsValue>(blocks);
    } else if constexpr (kPieces == kManyPieces) {
      LoadManyPieces<kIsValue>(blocks);
    } else {
      LoadPieces<kPieces, kIsValue>(blocks);
    }
    stage_.Advance();
  }

  // Waits until it is known; false if there are no more.
  __device__ __forceinline__ bool NextTile(RingPlace<Traits::kQueryBuffers>& buffer, Blocks& keys) {
    MBarrierWait(BarrierAt(shared_.tile_known, buffer.idx), buffer.parity);
    const PrefillTile& tile = shared_.tiles[buffer.idx];
    if (tile.num_rows == 0) return false;
    keys = {.next = tile.last_block,
            .left = tile.last_block - tile.first_block + 1,
            .kv_head = tile.kv_head,
            .key_tokens = tile.key_tokens,
            .key_begin = tile.key_begin};
    buffer.Advance();
    is_next_wanted_ = false;
    return true;
  }

  // The next tile is taken when this one's end is near: not before, so that blocks end together.
  __device__ __forceinline__ void WantNext(const Blocks& keys) {
    constexpr int kBlocksAhead = 3;
    if (is_next_wanted_ || keys.left > kBlocksAhead) return;
    is_next_wanted_ = true;
    if (lane() == 0) MBarrierArrive(BarrierAt(shared_.tile_wanted, 0));
  }

  template <bool kIsValue>
  static constexpr int kChunks = kIsValue ? Traits::kValueChunks : Traits::kHeadChunks;

  // By one lane.
  template <bool kIsValue>
  __device__ __forceinline__ void LoadDense(const Blocks& blocks) const {
    const std::uint32_t full = BarrierAt(shared_.ring_full, stage_.idx);
    const int token = static_cast<int>(blocks.key_begin) + blocks.next * kTileKeys;
    MBarrierWait(BarrierAt(shared_.ring_empty, stage_.idx), stage_.parity ^ 1);
    MBarrierArriveExpecting(full, kChunks<kIsValue> * Traits::kBlockChunkBytes);
    LoadRows<kIsValue>(full, /*first_row=*/0, blocks.kv_head, token, /*page=*/0);
  }

  // Rows of the stage from `first_row` on, as many as a copy has, from `token` of `page` on.
  template <bool kIsValue>
  __device__ __forceinline__ void LoadRows(std::uint32_t full, int first_row, int kv_head, int token, int page) const {
    const CUtensorMap* const map = kIsValue ? &arguments_.value : &arguments_.key;
    const std::uint32_t destination =
        SharedAddress(shared_.ring) + stage_.idx * Traits::kStageBytes + first_row * Traits::kRowBytes;
#pragma unroll
    for (int chunk = 0; chunk < kChunks<kIsValue>; ++chunk) {
      TensorLoad(destination + chunk * Traits::kBlockChunkBytes, map, full, {chunk * 64, kv_head, token, page});
    }
  }

  // ---- Pages ----
  //
  // A block's keys lie in pieces, each within one page. Pieces that have no key of the sequence are not loaded: consumers look
  // at no row beyond the last key.

  __device__ __forceinline__ int Pieces() const { return kTileKeys / arguments_.schedule.copy_keys; }

  // Of the pieces of a block, those that have a key of the sequence.
  __device__ __forceinline__ int PiecesOf(const Blocks& blocks, int copy_keys) const {
    const int num_keys = max(min(blocks.key_tokens - blocks.next * kTileKeys, kTileKeys), 0);
    return (num_keys + copy_keys - 1) / copy_keys;
  }
  __device__ __forceinline__ int TokenInPage(int key) const {
    const FastDivision& page_tokens = arguments_.schedule.page_tokens;
    const auto token = static_cast<std::uint32_t>(key);
    return static_cast<int>(token - page_tokens.Quotient(token) * page_tokens.divisor());
  }
  __device__ __forceinline__ int PageOf(const Blocks& blocks, int key) const {
    const std::uint32_t page = arguments_.schedule.page_tokens.Quotient(static_cast<std::uint32_t>(key));
    return arguments_.params.block_table[blocks.key_begin + page];
  }

  // ---- One or two pieces: one lane does it all ----

  // Everything is known before the stage is free: with so few stages each instruction after that shows.
  template <int kPieces, bool kIsValue>
  __device__ __forceinline__ void LoadPieces(const Blocks& blocks) {
    constexpr int kCopyKeys = kTileKeys / kPieces;
    const int num_pieces = PiecesOf(blocks, kCopyKeys), first_key = blocks.next * kTileKeys;
    int pages[kPieces], tokens[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int key = first_key + i * kCopyKeys;
      pages[i] = i < num_pieces ? PageOf(blocks, key) : 0;
      tokens[i] = TokenInPage(key);
      asm volatile("" : "+r"(tokens[i]));
    }
    const std::uint32_t full = BarrierAt(shared_.ring_full, stage_.idx);
    MBarrierWait(BarrierAt(shared_.ring_empty, stage_.idx), stage_.parity ^ 1);
    MBarrierArriveExpecting(full, num_pieces * kCopyKeys * kChunks<kIsValue> * Traits::kRowBytes);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (i < num_pieces) LoadRows<kIsValue>(full, i * kCopyKeys, blocks.kv_head, tokens[i], pages[i]);
    }
  }

  // ---- More: lanes look the pages of a window of whole blocks up at once, as many as there are lanes for, and those of the
  // window before (the walk goes down) while they use them ----

  __device__ __forceinline__ int WindowBlocks() const { return 32 / Pieces(); }

  __device__ __forceinline__ void BeginPages(const Blocks& keys) {
    window_ = keys.next / WindowBlocks();
    window_block_ = keys.next - window_ * WindowBlocks();
    pages_ = LookUp(keys, window_);
    earlier_pages_ = LookUp(keys, window_ - 1);
  }

  // The page of this lane's piece of a window. A piece that has no key of the sequence has none: its entry may be anything.
  __device__ __forceinline__ int LookUp(const Blocks& keys, int window) const {
    static_assert(kTileKeys / 8 <= 32, "a lane looks up one piece");
    const int piece = window * WindowBlocks() * Pieces() + lane();
    const int key = piece * arguments_.schedule.copy_keys;
    if (window < 0 || lane() >= WindowBlocks() * Pieces() || key >= keys.key_tokens) return 0;
    return PageOf(keys, key);
  }

  // The page of this lane's piece of the next block.
  __device__ __forceinline__ int NextPage(const Blocks& keys) {
    if (window_block_ < 0) {
      --window_;
      window_block_ = WindowBlocks() - 1;
      pages_ = earlier_pages_;
      earlier_pages_ = LookUp(keys, window_ - 1);
    }
    return __shfl_sync(kAllLanes, pages_, window_block_-- * Pieces() + lane());
  }

  // By a whole warp, each lane its piece. Keys and, a step later, their values lie in the same pages.
  template <bool kIsValue>
  __device__ __forceinline__ void LoadManyPieces(const Blocks& blocks) {
    if constexpr (!kIsValue) key_page_ = NextPage(blocks);
    const int page = kIsValue ? value_page_ : key_page_;
    const int copy_keys = arguments_.schedule.copy_keys, num_pieces = PiecesOf(blocks, copy_keys),
              first_row = lane() * copy_keys;
    const int token = TokenInPage(blocks.next * kTileKeys + first_row);
    const std::uint32_t full = BarrierAt(shared_.ring_full, stage_.idx);
    MBarrierWait(BarrierAt(shared_.ring_empty, stage_.idx), stage_.parity ^ 1);
    if (lane() == 0) MBarrierArriveExpecting(full, num_pieces * copy_keys * kChunks<kIsValue> * Traits::kRowBytes);
    __syncwarp();
    if (lane() < num_pieces) LoadRows<kIsValue>(full, first_row, blocks.kv_head, token, page);
    __syncwarp();
  }

  const PrefillArguments& arguments_;
  Shared& shared_;
  RingPlace<Traits::kStages> stage_;
  bool is_next_wanted_ = false;
  int window_ = 0, window_block_ = 0;  // of the next block: its window, and which of the window's blocks it is
  int pages_ = 0, earlier_pages_ = 0;  // of this lane's piece of the window, and of the window before
  int key_page_ = 0, value_page_ = 0;  // of this lane's piece of the keys, and of the values after them
};

}  // namespace ridgeline::kernels::attention
