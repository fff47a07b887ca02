#include "kernels/common/tensor_map.h"

namespace ridgeline::kernels {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function, looked up through the runtime: the program starts where there is no driver.
Encode FindEncode() {
  constexpr unsigned kSinceVersion = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSinceVersion, cudaEnableDefault, &result) !=
          cudaSuccess ||
      result != cudaDriverEntryPointSuccess) {
    return nullptr;
  }
  return reinterpret_cast<Encode>(function);
}

CUtensorMapDataType TypeOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DataType::kFloat16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  }
}

}  // namespace

cudaError_t MakeTensorMap(const TensorBoxes& boxes, CUtensorMap& map) {
  static const Encode encode = FindEncode();
  if (encode == nullptr) return cudaErrorNotSupported;
  constexpr cuuint32_t kElementStrides[4] = {1, 1, 1, 1};
  const CUresult result =
      encode(&map, TypeOf(boxes.data_type), 4, const_cast<void*>(boxes.base), boxes.extents.data(), boxes.strides_bytes.data(),
             boxes.box.data(), kElementStrides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace ridgeline::kernels
