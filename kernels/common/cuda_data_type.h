// Element types as CUDA's libraries name them.
#pragma once

#include <library_types.h>

#include "kernels/common/data_type.h"

namespace ridgeline::kernels {

// Of float32, float16 or bfloat16.
constexpr cudaDataType_t CudaDataType(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return CUDA_R_16F;
    case DataType::kBFloat16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

}  // namespace ridgeline::kernels
