// A copy of a device's tensor in host memory, of which rows are looked at.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/common/data_type.h"
#include "server/device/buffer.h"
#include "server/device/device.h"

namespace ridgeline::engine::benchmark {

class HostTensor {
 public:
  HostTensor() = default;

  // Waits for the lane. An empty buffer gives a tensor of no rows.
  static absl::StatusOr<HostTensor> Read(device::Lane& lane, const device::Buffer& buffer, kernels::DataType type,
                                         std::int64_t row_elems);

  // Widened; empty if there are no rows.
  std::vector<float> Row(std::int64_t row_idx) const;

 private:
  HostTensor(std::shared_ptr<const device::HostBuffer> bytes, kernels::DataType type, std::int64_t row_elems)
      : bytes_(std::move(bytes)), type_(type), row_elems_(row_elems) {}

  std::shared_ptr<const device::HostBuffer> bytes_;  // null: no rows
  kernels::DataType type_ = kernels::DataType::kFloat32;
  std::int64_t row_elems_ = 0;
};

}  // namespace ridgeline::engine::benchmark
