// From a problem to the launch of a rotary kernel.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/rounding.h"
#include "kernels/fused/cuda_launches.h"
#include "kernels/fused/rope_kernel.cuh"

namespace ridgeline::kernels::fused {

// Whether every head, and every part of one that turns by itself, is whole words of 16 bytes.
template <typename T>
bool HasWholeWords(const RopeArguments& arguments) {
  constexpr int kElems = kVectorElems<T>;
  const AngleArguments& angles = arguments.angles;
  const int part = angles.layout == RopeLayout::kInterleaved ? angles.rotary_dim : angles.rotary_dim / 2;
  std::uintptr_t distances = 0;
  for (const void* array :
       {arguments.query, static_cast<const void*>(arguments.turned_query), arguments.append.key, arguments.append.value,
        static_cast<const void*>(arguments.append.to.pages.key), static_cast<const void*>(arguments.append.to.pages.value)}) {
    distances |= DistanceFromWord(array);
  }
  return distances == 0 && part % kElems == 0 && angles.head_dim % kElems == 0 && arguments.value_elems % kElems == 0;
}

template <typename T>
HeadPieces PiecesOf(const RopeOptions& rope, bool words) {
  const int elems = words ? kVectorElems<T> : 1;
  const auto head_dim = static_cast<int>(rope.head_dim), rotary_dim = static_cast<int>(rope.rotary_dim);
  const int num_turning = words && rope.layout == RopeLayout::kInterleaved ? rotary_dim / elems : rotary_dim / 2 / elems;
  const int count = num_turning + (head_dim - rotary_dim) / elems;
  return {.head_dim = head_dim,
          .rotary_dim = rotary_dim,
          .num_turning = num_turning,
          .count = FastDivision(static_cast<std::uint32_t>(count))};
}

template <typename T>
cudaError_t LaunchRope(const FusedParams& params, cudaStream_t stream) {
  const FusedShape& shape = params.shape;
  const bool appends = shape.op == Op::kRopeAppend;
  RopeArguments arguments = {.angles = {.rates = RatesOf(shape.rope),
                                        .layout = shape.rope.layout,
                                        .head_dim = static_cast<int>(shape.rope.head_dim),
                                        .rotary_dim = static_cast<int>(shape.rope.rotary_dim),
                                        .num_rows = shape.num_rows,
                                        .rows = {},
                                        .positions = shape.has_positions ? params.positions : nullptr},
                             .pieces = {},
                             .query = shape.has_input ? params.input : nullptr,
                             .turned_query = shape.has_input ? params.output : nullptr,
                             .append = {},
                             .query_elems = shape.has_input ? static_cast<int>(shape.row_elems) : 0,
                             .key_elems = appends ? static_cast<int>(shape.key_elems) : 0,
                             .value_elems = appends ? static_cast<int>(shape.value_elems) : 0,
                             .query_pieces = 0,
                             .key_pieces = 0,
                             .token_threads_log2 = 0,
                             .token_units = 0,
                             .slices = {}};
  if (appends) {
    arguments.append = params.append;
    arguments.angles.rows = params.append.to;
  }
  const bool words = HasWholeWords<T>(arguments);
  arguments.pieces = PiecesOf<T>(shape.rope, words);
  const auto pieces_of = [&arguments](int elems) {
    return elems / arguments.pieces.head_dim * static_cast<int>(arguments.pieces.count.divisor());
  };
  arguments.query_pieces = pieces_of(arguments.query_elems);
  arguments.key_pieces = pieces_of(arguments.key_elems);
  // A block has as many tokens as have a piece for each thread, or as much of one token: blocks that are small begin to write
  // soon.
  const int token_pieces = std::max(arguments.query_pieces, arguments.key_pieces);
  const auto block_tokens = std::bit_floor(static_cast<unsigned>(std::clamp(kRopeThreads / token_pieces, 1, kRopeThreads)));
  arguments.token_threads_log2 = std::countr_zero(kRopeThreads / block_tokens);
  arguments.token_units = TokenSines::Units(arguments.angles.rotary_dim / 2);
  const auto slices = static_cast<std::uint32_t>(CeilDivide(token_pieces, kRopeThreads));
  arguments.slices = FastDivision(slices);

  const bool interleaved = shape.rope.layout == RopeLayout::kInterleaved;
  void (*kernel)(RopeArguments) =
      words ? RopeKernel<T, RopeLayout::kHalfSplit, true> : RopeKernel<T, RopeLayout::kHalfSplit, false>;
  if (interleaved) {
    kernel = words ? RopeKernel<T, RopeLayout::kInterleaved, true> : RopeKernel<T, RopeLayout::kInterleaved, false>;
  }
  const LaunchShape launch = {.grid = dim3(static_cast<unsigned>(CeilDivide(shape.num_rows, block_tokens)) * slices),
                              .block = dim3(kRopeThreads),
                              .shared_memory_bytes = static_cast<int>(block_tokens * arguments.token_units * sizeof(float4))};
  return Launch(kernel, launch, stream, arguments);
}

}  // namespace ridgeline::kernels::fused
