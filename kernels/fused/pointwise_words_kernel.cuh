// The same of tensors that are whole words at multiples of 16 bytes, as nearly all are: there is nothing to ask of a word but
// which it is, and the launch knows which operands there are. So it has a quarter fewer instructions, and as the kernels have
// time for about thirty an element, that is time.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/fast_division.h"
#include "kernels/fused/pointwise_kernel.cuh"
#include "kernels/fused/vectors.cuh"

namespace ridgeline::kernels::fused {

inline constexpr std::int64_t kMostPointwiseWords = (std::int64_t{1} << 29) - 1;  // that FastDivision divides

// What there is beside the input.
enum class Beside { kNone, kOther, kBias };

// Words of a thread, and threads of a block. With one tensor to read, a second word covers the wait for the first.
template <Beside kBeside>
inline constexpr int kPointwiseWords = kBeside == Beside::kOther ? 1 : 2;
template <Beside kBeside>
inline constexpr int kPointwiseThreads = kBeside == Beside::kOther ? 256 : 128;
inline constexpr int kThreadsOfSm = 2048;

struct PointwiseWordsArguments {
  std::uint32_t num_words;
  FastDivision row_words;
  const void* input;
  const void* operand;  // other or bias
  void* output;
};

template <typename T, Beside kBeside>
__device__ __forceinline__ Vector<T> LoadBeside(const PointwiseWordsArguments& arguments, std::uint32_t word) {
  const T* const from = static_cast<const T*>(arguments.operand);
  if constexpr (kBeside == Beside::kOther) return LoadWord<T, Reuse::kNever>(from + std::int64_t{word} * kVectorElems<T>);
  const std::uint32_t column = word - arguments.row_words.Quotient(word) * arguments.row_words.divisor();
  return LoadWord<T, Reuse::kSoon>(from + std::int64_t{column} * kVectorElems<T>);
}

template <typename T, Pointwise kFunction, Beside kBeside>
__global__ void __launch_bounds__(kPointwiseThreads<kBeside>, kThreadsOfSm / kPointwiseThreads<kBeside>)
    PointwiseWordsKernel(const __grid_constant__ PointwiseWordsArguments arguments) {
  constexpr int kElems = kVectorElems<T>, kWords = kPointwiseWords<kBeside>, kThreads = kPointwiseThreads<kBeside>;
  const std::uint32_t first = blockIdx.x * (kThreads * kWords) + threadIdx.x;
  Vector<T> words[kWords], operands[kWords];
#pragma unroll
  for (int v = 0; v < kWords; ++v) {
    const std::uint32_t word = first + v * kThreads;
    if (word >= arguments.num_words) break;
    words[v] = LoadWord<T, Reuse::kNever>(static_cast<const T*>(arguments.input) + std::int64_t{word} * kElems);
    if constexpr (kBeside != Beside::kNone) operands[v] = LoadBeside<T, kBeside>(arguments, word);
  }
#pragma unroll
  for (int v = 0; v < kWords; ++v) {
    const std::uint32_t word = first + v * kThreads;
    if (word >= arguments.num_words) return;
    float x[kElems], operand[kElems] = {};
    words[v].Unpack(x);
    if constexpr (kBeside != Beside::kNone) operands[v].Unpack(operand);
#pragma unroll
    for (int i = 0; i < kElems; ++i) {
      if constexpr (kBeside == Beside::kBias) x[i] += operand[i];
      x[i] = Apply<T, kFunction, kBeside == Beside::kOther>(x[i], operand[i]);
    }
    __stcs(reinterpret_cast<uint4*>(static_cast<T*>(arguments.output) + std::int64_t{word} * kElems), Vector<T>::Pack(x).bits);
  }
}

}  // namespace ridgeline::kernels::fused
