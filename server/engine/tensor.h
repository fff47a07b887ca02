// Tensors as the engine sees them: described, not yet checked, their bytes still in the caller's buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kernels/common/data_type.h"
#include "server/device/buffer.h"

namespace ridgeline::engine {

// Bytes in host memory, in pieces, kept alive by `owner`.
struct InlineData {
  std::vector<device::HostSlice> slices;
  std::int64_t size_bytes = 0;  // of all slices
  std::shared_ptr<const void> owner;
};

// Elements mean + standard_deviation * normal, made by the device.
struct RandomFill {
  std::uint64_t seed = 0;
  double mean = 0;
  double standard_deviation = 1;
};

// A region registered by a shared-memory service, which this server does not have: refused as UNIMPLEMENTED.
struct SharedMemorySlice {
  std::string region;
  std::int64_t offset_bytes = 0;
};

// An argument, as it came. Fields mirror ridgeline.v1.Tensor, so that errors name what the client sent.
struct Tensor {
  std::optional<kernels::DataType> data_type;
  std::vector<std::int64_t> shape;
  std::variant<std::monostate, InlineData, RandomFill, SharedMemorySlice> storage;
};

// A result, in host memory that lives as long as somebody holds `data`.
struct OutputTensor {
  kernels::DataType data_type;
  std::vector<std::int64_t> shape;
  std::shared_ptr<const device::HostBuffer> data;  // null when empty
};

}  // namespace ridgeline::engine
