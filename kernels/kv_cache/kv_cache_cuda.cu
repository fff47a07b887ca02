#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/kv_cache/find_token.cuh"
#include "kernels/kv_cache/kv_cache_cuda.h"
#include "kernels/kv_cache/pieces.cuh"

namespace ridgeline::kernels::kv_cache {
namespace {

// The row of the pages that holds the token of this dense row; -1 if it belongs to none.
__device__ std::int64_t FindPagedRow(const PagedRows& rows, std::int64_t row) {
  const TokenSpan* const span = FindSpan(rows, row);
  return span == nullptr ? -1 : PagedRow(rows, *span, row);
}

template <typename Word>
__global__ void __launch_bounds__(kPieceThreads)
    AppendKernel(const __grid_constant__ AppendParams params, const __grid_constant__ Cut cut) {
  const Pages& pages = params.to.pages;
  ForEachPiece(params.to.num_rows, cut, [&](std::int64_t row, std::int64_t piece_idx) {
    const std::int64_t paged_row = FindPagedRow(params.to, row);
    if (paged_row < 0) return;
    CopyPiece<Word>(cut, piece_idx, {pages.key, pages.value, paged_row}, {params.key, params.value, row});
  });
}

template <typename Word>
__global__ void __launch_bounds__(kPieceThreads)
    GatherKernel(const __grid_constant__ GatherParams params, const __grid_constant__ Cut cut) {
  const Pages& pages = params.from.pages;
  ForEachPiece(params.from.num_rows, cut, [&](std::int64_t row, std::int64_t piece_idx) {
    const std::int64_t paged_row = FindPagedRow(params.from, row);
    if (paged_row < 0) return;
    CopyPiece<Word>(cut, piece_idx, {params.key, params.value, row}, {pages.key, pages.value, paged_row});
  });
}

// A row is a page here.
template <typename Word>
__global__ void __launch_bounds__(kPieceThreads)
    CopyPagesKernel(const __grid_constant__ CopyPagesParams params, const __grid_constant__ Cut cut) {
  ForEachPiece(params.num_layers * params.num_copies, cut, [&](std::int64_t i, std::int64_t piece_idx) {
    const std::int64_t layer = i / params.num_copies;
    const PageCopy copy = params.copies[i % params.num_copies];
    char* const key = static_cast<char*>(params.key) + layer * params.key_layer_stride_bytes;
    char* const value = static_cast<char*>(params.value) + layer * params.value_layer_stride_bytes;
    CopyPiece<Word>(cut, piece_idx, {key, value, copy.destination}, {key, value, copy.source});
  });
}

// Launches the kernel for words of 16 bytes where rows, and so their addresses, are multiples of that. One KV head of 8-bit
// elements may have rows of 8 bytes, or of 24.
template <typename Params>
cudaError_t LaunchInWords(void (*wide)(Params, Cut), void (*narrow)(Params, Cut), std::int64_t num_rows,
                          std::int64_t key_row_bytes, std::int64_t value_row_bytes, const Params& params, cudaStream_t stream) {
  const bool is_wide = key_row_bytes % sizeof(uint4) == 0 && value_row_bytes % sizeof(uint4) == 0;
  const Cut cut =
      is_wide ? CutIntoPieces<uint4>(key_row_bytes, value_row_bytes) : CutIntoPieces<uint2>(key_row_bytes, value_row_bytes);
  return Launch(is_wide ? wide : narrow, {BlocksFor(num_rows, cut), dim3(kPieceThreads)}, stream, params, cut);
}

}  // namespace

cudaError_t LaunchAppend(const AppendParams& params, cudaStream_t stream) {
  return LaunchInWords<AppendParams>(AppendKernel<uint4>, AppendKernel<uint2>, params.to.num_rows,
                                     params.to.pages.KeyRowBytes(), params.to.pages.ValueRowBytes(), params, stream);
}

cudaError_t LaunchGather(const GatherParams& params, cudaStream_t stream) {
  return LaunchInWords<GatherParams>(GatherKernel<uint4>, GatherKernel<uint2>, params.from.num_rows,
                                     params.from.pages.KeyRowBytes(), params.from.pages.ValueRowBytes(), params, stream);
}

cudaError_t LaunchCopyPages(const CopyPagesParams& params, cudaStream_t stream) {
  return LaunchInWords<CopyPagesParams>(CopyPagesKernel<uint4>, CopyPagesKernel<uint2>, params.num_layers * params.num_copies,
                                        params.key_page_bytes, params.value_page_bytes, params, stream);
}

}  // namespace ridgeline::kernels::kv_cache
