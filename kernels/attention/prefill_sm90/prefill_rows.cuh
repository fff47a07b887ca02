// The role of a warpgroup that computes: 64 query rows of a tile against all blocks of keys that the tile walks.
//
//   smem query ─┐
//   smem ring  ─┴─wgmma─► frag S ──mask, softmax──► frag P ─┐
//   smem ring  ─────────────────────────────────────────────┴─wgmma─► frag O ──epilogue──►
//
// One step: S of the next block and O += P·V of the last one are issued together, in this warpgroup's turn; while the matrix
// unit then works for another warpgroup, this one turns S into P.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/prefill_sm90/prefill_arguments.h"
#include "kernels/attention/prefill_sm90/prefill_epilogue.cuh"
#include "kernels/attention/prefill_sm90/prefill_logits.cuh"
#include "kernels/attention/prefill_sm90/prefill_mask.cuh"
#include "kernels/attention/prefill_sm90/prefill_softmax.cuh"
#include "kernels/attention/prefill_sm90/prefill_traits.cuh"
#include "kernels/attention/prefill_sm90/prefill_turns.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/named_barrier.cuh"
#include "kernels/common/shared_memory.cuh"
#include "kernels/common/tensor_copy.cuh"
#include "kernels/common/wgmma.cuh"

namespace ridgeline::kernels::attention {

template <typename Traits>
class GroupAttention {
  using T = typename Traits::T;
  using Shared = typename Traits::SharedStorage;
  static constexpr int kTileKeys = Traits::kTileKeys;
  using Softmax = SpeculativeSoftmax<T, kTileKeys, Traits::kEarlyWeights>;
  using Weights = typename Softmax::Weights;
  static constexpr int kKeySteps = kTileKeys / 16;            // of the sum in P·V
  static constexpr int kColumnSteps = Traits::kHeadDim / 16;  // of the sum in Q·Kᵀ
  static constexpr float kLog2E = 1.4426950408889634f;

 public:
  __device__ __forceinline__ GroupAttention(const PrefillArguments& arguments, Shared& shared, int consumer)
      : arguments_(arguments),
        shared_(shared),
        consumer_(consumer),
        turns_(consumer),
        logits_(arguments),
        softmax_(LogitUnit<Traits::kLogitOption>(arguments) * kLog2E),
        query_operand_(SharedAddress(shared.query) + consumer * Traits::kGroupBytes, 0),
        key_operand_(SharedAddress(shared.ring), 0),
        value_operand_(SharedAddress(shared.ring), Traits::kBlockChunkBytes) {}

  __device__ __forceinline__ void Run() {
    if (!NextTile()) return;
    turns_.Begin();
    BeginTile();
    while (true) {
      WalkBlocks();
      if constexpr (!Traits::kOverlapsTiles) EndTile();
      if (!NextTile()) break;
      if constexpr (Traits::kOverlapsTiles) {
        JoinTiles();
      } else {
        turns_.Begin();
        BeginTile();
      }
    }
    if constexpr (Traits::kOverlapsTiles) EndTile();
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32 % 4; }
  // Where this thread's scores begin in the tile, and in a block. Its second row is 8 further on.
  __device__ int FirstRow() const { return consumer_ * Traits::kGroupRows + warp() * 16 + lane() / 4; }
  __device__ static int FirstColumn() { return lane() % 4 * 2; }

  // ---- Tiles ----

  __device__ __forceinline__ const PrefillTile& tile() const { return shared_.tiles[buffer_.idx]; }

  // Waits for the next tile; false if there is none.
  __device__ __forceinline__ bool NextTile() {
    if (is_first_) {
      is_first_ = false;
    } else {
      last_buffer_ = buffer_.idx;
      buffer_.Advance();
    }
    MBarrierWait(BarrierAt(shared_.query_full, buffer_.idx), buffer_.parity);
    const GroupWalk& walk = shared_.walks[buffer_.idx][consumer_];
    if (AlikeInWarp(tile().num_rows) == 0) return false;
    block_ = AlikeInWarp(walk.last_block);
    first_block_ = AlikeInWarp(walk.first_block);
    num_skipped_ = AlikeInWarp(walk.num_skipped);
    full_begin_ = AlikeInWarp(walk.full_begin);
    full_end_ = AlikeInWarp(walk.full_end);
    return true;
  }

  // The first block of a tile whose products run beside no other tile's.
  __device__ __forceinline__ void BeginTile() {
    PrefetchLogits();
    const int stage = SkipBlocks(TakeStage());
    IssueScores(stage);
    AwaitScores</*kPending=*/0>(stage);
    BeginWeights(weights_);
    ClearOutput();
  }

  // The last product of one tile beside the first of the next.
  __device__ __forceinline__ void JoinTiles() {
    PrefetchLogits();
    const int last_keys = TakeStage(), value_stage = TakeStage();
    const int key_stage = SkipBlocks(last_keys);
    turns_.Await();
    IssueScores(key_stage);
    IssueOutput(value_stage);
    turns_.Pass();
    const FinishedRows finished = Epilogue().Finish(softmax_.rows());
    AwaitScores(key_stage);
    if constexpr (Traits::kBeginsEarly) {  // P·V still reads the weights of the tile before
      Weights first_weights;
      BeginWeights(first_weights);
      AwaitOutput(value_stage);
      StoreRows(finished);
#pragma unroll
      for (int i = 0; i < kTileKeys / 4; ++i) weights_[i] = first_weights[i];
    } else {
      AwaitOutput(value_stage);
      StoreRows(finished);
      BeginWeights(weights_);
    }
    ClearOutput();
  }

  // The last product of a tile that no other follows.
  __device__ __forceinline__ void EndTile() {
    const int stage = TakeStage();
    turns_.Await();
    IssueOutput(stage);
    turns_.Pass(/*is_last_round=*/true);
    if constexpr (!Traits::kOverlapsTiles) last_buffer_ = buffer_.idx;
    const FinishedRows finished = Epilogue().Finish(softmax_.rows());
    AwaitOutput(stage);
    StoreRows(finished);
  }

  // A warp whose weights were not good enough leaves the loop to do the block again, and comes back: products stay in one place
  // of the code for all warps of the warpgroup, as they must, and the way that is nearly always taken stays short.
  __device__ __forceinline__ void WalkBlocks() {
    while (block_ > first_block_) {
      bool is_good = true;
      const int plain_begin = max(first_block_, full_begin_);
      while (is_good && Traits::kHasPlainSteps && block_ > plain_begin && block_ <= full_end_ && present_keys_ >= kTileKeys) {
        --block_;
        is_good = Step</*kIsPlain=*/true>();
      }
      if (is_good && block_ > first_block_) {
        --block_;
        is_good = Step</*kIsPlain=*/false>();
      }
      if (!is_good) RedoBlock();
    }
  }

  // kIsPlain: no mask cuts the block, nor does the end of the sequence the one before. False if the weights are not good
  // enough.
  template <bool kIsPlain>
  __device__ __forceinline__ bool Step() {
    PrefetchLogits();
    const int key_stage = TakeStage();
    // With a bias on its way, the compiler would have products run one after the other if there were a jump between them.
    constexpr bool kTakesValuesFirst = Traits::kLogitOption == LogitOption::kAny;
    int value_stage;
    if constexpr (kTakesValuesFirst) {
      value_stage = TakeStage();
      ClearTail(value_stage);
    }
    turns_.Await();
    IssueScores(key_stage);
    if constexpr (!kTakesValuesFirst) value_stage = TakeStage();
    IssueOutput<kIsPlain || kTakesValuesFirst>(value_stage);
    turns_.Pass();
    AwaitScores(key_stage);
    FinishScores<kIsPlain>();
    // One wait for all warps of the warpgroup, as it must be. The branch is what keeps the compiler from waiting for P·V before
    // all weights; it can't tell what the branch sets, or it would copy the wait into it.
    typename Softmax::EarlyWeights early = {};
    unsigned is_good = 1;
    if constexpr (Traits::kEarlyWeights > 0) {
      if (!softmax_.TryEarly(scores_, early)) asm volatile("nanosleep.u32 0; mov.u32 %0, 0;" : "=r"(is_good));
    }
    AwaitOutput(value_stage);
    if (is_good == 0) return false;
    return softmax_.TryRest(scores_, early, weights_);
  }

  __device__ __forceinline__ void RedoBlock() {
    float factor[2];
    softmax_.RedoBlock(scores_, weights_, shared_.walks[buffer_.idx][consumer_].last_block - block_, factor);
#pragma unroll
    for (int i = 0; i < Traits::kValueHeadDim / 2; ++i) output_[i] *= factor[i / 2 % 2];
  }

  // ---- The ring ----

  __device__ __forceinline__ int TakeStage() {
    MBarrierWait(BarrierAt(shared_.ring_full, stage_.idx), stage_.parity);
    const int taken = stage_.idx;
    stage_.Advance();
    return taken;
  }
  __device__ __forceinline__ void Release(int stage) const {
    MBarrierArriveIf(lane() == 0, BarrierAt(shared_.ring_empty, stage));
  }

  // Blocks at a tile's end that this warpgroup's rows do not see: their keys, and their values, which come one place later,
  // pass by. `stage`: of the last block's keys. Returns that of the first keys to be used.
  __device__ __forceinline__ int SkipBlocks(int stage) {
#pragma unroll 1
    for (int i = 0; i < num_skipped_; ++i) {
      turns_.Await();
      turns_.Pass();
      Release(stage);
      stage = TakeStage();
      Release(TakeStage());
    }
    return stage;
  }

  // ---- Products ----

  // Where this warp's 16 rows of a buffer begin.
  __device__ __forceinline__ std::uint32_t WarpRows(int buffer) const {
    return SharedAddress(shared_.query) + buffer * Traits::kQueryBytes + consumer_ * Traits::kGroupBytes +
           warp() * Traits::kWarpBytes;
  }

  // S = Q·Kᵀ.
  __device__ __forceinline__ void IssueScores(int stage) {
    const WgmmaOperand keys = key_operand_.At(stage * Traits::kStageBytes);
    const WgmmaOperand queries = query_operand_.At(buffer_.idx * Traits::kQueryBytes);
    PinRegisters(scores_);
    WgmmaFence();
#pragma unroll
    for (int k = 0; k < kColumnSteps; ++k) {
      const WgmmaOperand key = keys.At(k / 4 * Traits::kBlockChunkBytes + k % 4 * 32);
      const WgmmaOperand query = queries.At(k / 4 * Traits::kQueryChunkBytes + k % 4 * 32);
      if (k == 0) {
        Wgmma<kTileKeys>::template Shared<T, false>(scores_, query, key);
      } else {
        Wgmma<kTileKeys>::template Shared<T, true>(scores_, query, key);
      }
    }
    WgmmaCommit();
  }

  // O += P·V.
  template <bool kIsPlain = false>
  __device__ __forceinline__ void IssueOutput(int stage) {
    if constexpr (!kIsPlain) ClearTail(stage);
    const WgmmaOperand values = value_operand_.At(stage * Traits::kStageBytes);
    PinRegisters(output_);
    PinRegisters(weights_);
    WgmmaFence();
#pragma unroll
    for (int k = 0; k < kKeySteps; ++k) {
      const std::uint32_t weights[4] = {weights_[4 * k], weights_[4 * k + 1], weights_[4 * k + 2], weights_[4 * k + 3]};
      Wgmma<Traits::kValueHeadDim>::template Registers<T, true, true>(output_, weights, values.At(k * 16 * Traits::kRowBytes));
    }
    WgmmaCommit();
  }

  // kPending: groups of products issued after the scores'.
  template <int kPending = 1>
  __device__ __forceinline__ void AwaitScores(int stage) {
    WgmmaWait<kPending>();
    PinRegisters(scores_);
    Release(stage);
  }
  __device__ __forceinline__ void AwaitOutput(int stage) {
    WgmmaWait<0>();
    PinRegisters(output_);
    PinRegisters(weights_);
    Release(stage);
  }

  // Values beyond a sequence's end are its neighbour's, or stale: what their weight of 0 does not hide becomes 0. All
  // warpgroups write the same zeros.
  __device__ __forceinline__ void ClearTail(int stage) {
    if (present_keys_ >= kTileKeys) return;
    const std::uint32_t values = SharedAddress(shared_.ring) + stage * Traits::kStageBytes;
    const int thread = static_cast<int>(threadIdx.x) % Traits::kGroupThreads;
#pragma unroll 1
    for (int first_row = present_keys_; first_row < kTileKeys; first_row += Traits::kGroupThreads / 8) {
      const int row = first_row + thread / 8;
#pragma unroll
      for (int chunk = 0; chunk < Traits::kValueChunks; ++chunk) {
        if (row >= kTileKeys) continue;
        StoreShared16(values + chunk * Traits::kBlockChunkBytes + row * Traits::kRowBytes + thread % 8 * 16, uint4{0, 0, 0, 0});
      }
    }
    SharedToAsyncFence();
    NamedBarrierSync(kTailBarrier + consumer_, Traits::kGroupThreads);
    present_keys_ = kTileKeys;
  }

  // ---- Rows ----

  // Of block `block_`.
  __device__ __forceinline__ void PrefetchLogits() {
    if constexpr (Traits::kHasLogitOptions) logits_.Prefetch(tile(), FirstRow(), block_ * kTileKeys + FirstColumn());
  }

  // Products of block `block_` -> logits, -inf where hidden.
  template <bool kIsPlain = false>
  __device__ __forceinline__ void FinishScores() {
    const int first_key = block_ * kTileKeys + FirstColumn();
    const int first_row = FirstRow();
    const int position = tile().position;
    const bool is_before = position + consumer_ * Traits::kGroupRows >= (block_ + 1) * kTileKeys;
    logits_.Finish(scores_, position + first_row - first_key, is_before);
    if (kIsPlain || (block_ < full_end_ && block_ >= full_begin_)) return;
    const RowKeys keys[2] = {KeysOfRow(arguments_.schedule, tile(), first_row),
                             KeysOfRow(arguments_.schedule, tile(), first_row + 8)};
    if (block_ >= full_end_) HideLaterKeys(scores_, keys[0].end - first_key, keys[1].end - first_key);
    if (block_ < full_begin_) HideEarlierKeys(scores_, keys[0].begin - first_key, keys[1].begin - first_key);
  }

  // Of the first block of the warpgroup's tile.
  __device__ __forceinline__ void BeginWeights(Weights& weights) {
    FinishScores();
    const GroupWalk& walk = shared_.walks[buffer_.idx][consumer_];
    softmax_.Begin(scores_, weights, Traits::kBeginsWithMaximum || AlikeInWarp(walk.has_few_keys) != 0);
    present_keys_ = AlikeInWarp(walk.present_keys);
  }
  __device__ __forceinline__ void ClearOutput() {
#pragma unroll
    for (int i = 0; i < Traits::kValueHeadDim / 2; ++i) output_[i] = 0;
  }

  // Of the tile that the output is of.
  __device__ __forceinline__ PrefillEpilogue<Traits> Epilogue() const {
    const int row = consumer_ * Traits::kGroupRows + warp() * 16;
    return {arguments_, shared_.tiles[last_buffer_], WarpRows(last_buffer_), consumer_, row};
  }
  __device__ __forceinline__ void StoreRows(const FinishedRows& finished) {
    Epilogue().Run(finished, softmax_.log2_scale(), output_, BarrierAt(shared_.output_full, last_buffer_));
  }

  static constexpr int kTailBarrier = 1 + Traits::kConsumers;  // the first behind those of the turns

  const PrefillArguments& arguments_;
  Shared& shared_;
  const int consumer_;
  const WarpgroupTurns<Traits::kConsumers> turns_;
  BlockLogits<Traits> logits_;
  Softmax softmax_;
  const WgmmaOperand query_operand_, key_operand_, value_operand_;

  RingPlace<Traits::kStages> stage_;
  RingPlace<Traits::kQueryBuffers> buffer_;  // of the tile that scores are of
  int last_buffer_ = 0;                      // of the tile that the output is of, at a tile's end
  bool is_first_ = true;
  int block_ = 0;        // of the scores
  int first_block_ = 0;  // where the walk ends
  int full_begin_ = 0, full_end_ = 0;
  int num_skipped_ = 0;           // of the tile's last blocks, which this warpgroup's rows don't see
  int present_keys_ = kTileKeys;  // of the block that the weights are of; more than a block: all

  float scores_[kTileKeys / 2] = {};
  float output_[Traits::kValueHeadDim / 2];
  Weights weights_;
};

}  // namespace ridgeline::kernels::attention
