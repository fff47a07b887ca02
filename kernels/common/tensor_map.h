// Tensor maps: what the copy engine of sm_90 must know of a tensor in global memory, made on the host for each launch.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "kernels/common/data_type.h"

namespace ridgeline::kernels {

// A tensor of 16-bit or float32 elements, [w, z, y, x] with x contiguous, and the box that a copy moves. In shared memory a
// box's rows are 128 bytes, in the 128-byte swizzle: chunk c of 16 bytes of row r lies at place c ^ (r % 8).
struct TensorBoxes {
  DataType data_type;
  const void* base;                            // aligned to 16 bytes
  std::array<std::uint64_t, 4> extents;        // x, y, z, w; each at least 1
  std::array<std::uint64_t, 3> strides_bytes;  // of y, z and w; multiples of 16
  std::array<std::uint32_t, 4> box;            // x, y, z, w; x is 64, of float32 32
};

// cudaErrorInvalidValue for what the hardware cannot describe, cudaErrorNotSupported where the driver cannot.
cudaError_t MakeTensorMap(const TensorBoxes& boxes, CUtensorMap& map);

}  // namespace ridgeline::kernels
