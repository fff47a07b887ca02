// Weights and biases of columns: what a thread needs of them for its words of a row.
#pragma once

#include <cuda_runtime.h>

#include "kernels/fused/row_part.cuh"
#include "kernels/fused/vectors.cuh"

namespace ridgeline::kernels::fused {

// A word of ones or of zeros, where there is no weight or bias.
template <typename T>
__device__ const Vector<T> kOnes = OnesVector<T>();
template <typename T>
__device__ const Vector<T> kZeros = {};

// The thread's words of a column vector. kIsEarly: they are loaded at once, so that they are there when they are wanted.
template <typename T, RowAccess kAccess, bool kIsEarly>
class ColumnWords {
 public:
  // `columns` null: `otherwise` is each word.
  __device__ __forceinline__ ColumnWords(const RowPart<T, kAccess>& part, const void* columns, const Vector<T>& otherwise)
      : columns_(static_cast<const T*>(columns)), otherwise_(otherwise) {
    if constexpr (kAccess != RowAccess::kElements) {
      stride_ = columns == nullptr ? 0 : part.WordStride();
      columns_ = columns == nullptr ? reinterpret_cast<const T*>(&otherwise) : columns_ + part.first_column;
    }
    if constexpr (kIsEarly) {
#pragma unroll
      for (int v = 0; v < kHeldWords<T>; ++v) {
        if (part.HasAny(part.first_column + v * part.WordStride()))
          early_[v] = LoadWord<T, Reuse::kSoon>(columns_ + v * stride_);
      }
    }
  }

  __device__ __forceinline__ Vector<T> Word(const RowArguments& arguments, const RowPart<T, kAccess>& part, int chunk,
                                            int word) const {
    if constexpr (kIsEarly) return early_[word];
    if constexpr (kAccess != RowAccess::kElements) return LoadWord<T, Reuse::kSoon>(columns_ + word * stride_);
    if (columns_ == nullptr) return otherwise_;
    return Load<T, Reuse::kSoon>(columns_, part.Column(arguments, chunk, word), part.bounds, false);
  }

 private:
  const T* columns_;
  const Vector<T>& otherwise_;
  int stride_ = 0;
  Held<T> early_;
};

}  // namespace ridgeline::kernels::fused
