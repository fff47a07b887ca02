#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/standard/standard_cuda_gather.h"
#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/data_type.h"
#include "kernels/kv_cache/pieces.cuh"

namespace ridgeline::kernels::attention {
namespace {

using Word = uint4;  // a row of 8 elements of 16 bits is one

__global__ void __launch_bounds__(kv_cache::kPieceThreads)
    GatherRunKernel(const __grid_constant__ AttentionParams params, const __grid_constant__ SequenceRun run, void* key,
                    void* value, const __grid_constant__ kv_cache::Cut cut) {
  const std::int64_t page_tokens = params.shape.page_tokens;
  kv_cache::ForEachPiece(run.count * run.key_tokens, cut, [&](std::int64_t row, std::int64_t piece_idx) {
    const std::int64_t sequence = row / run.key_tokens;
    const std::int64_t token = row - sequence * run.key_tokens;
    const std::int64_t first_entry = params.sequences[run.first_sequence + sequence].key_begin;
    const std::int64_t page = params.block_table[first_entry + token / page_tokens];
    kv_cache::CopyPiece<Word>(cut, piece_idx, {key, value, run.first_key_token + row},
                              {params.key, params.value, page * page_tokens + token % page_tokens});
  });
}

}  // namespace

cudaError_t LaunchGatherRun(const AttentionParams& params, const SequenceRun& run, void* key, void* value,
                            cudaStream_t stream) {
  const std::int64_t head_bytes = params.shape.kv_heads * ElementBytes(params.shape.data_type);
  const kv_cache::Cut cut =
      kv_cache::CutIntoPieces<Word>(head_bytes * params.shape.head_dim, head_bytes * params.shape.value_head_dim);
  const LaunchShape shape = {kv_cache::BlocksFor(run.count * run.key_tokens, cut), dim3(kv_cache::kPieceThreads)};
  return Launch(GatherRunKernel, shape, stream, params, run, key, value, cut);
}

}  // namespace ridgeline::kernels::attention
