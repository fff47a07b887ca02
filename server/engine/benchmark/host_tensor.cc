#include "server/engine/benchmark/host_tensor.h"

#include "kernels/common/convert.h"
#include "server/base/status_macros.h"
#include "server/engine/measure/device_trial.h"

namespace ridgeline::engine::benchmark {

absl::StatusOr<HostTensor> HostTensor::Read(device::Lane& lane, const device::Buffer& buffer, kernels::DataType type,
                                            std::int64_t row_elems) {
  if (buffer.size_bytes() == 0) return HostTensor();
  RIDGELINE_ASSIGN_OR_RETURN(auto bytes, measure::ReadBack(lane, buffer, buffer.size_bytes()));
  return HostTensor(std::move(bytes), type, row_elems);
}

std::vector<float> HostTensor::Row(std::int64_t row_idx) const {
  if (bytes_ == nullptr) return {};
  std::vector<float> row(row_elems_);
  const std::int64_t row_bytes = row_elems_ * kernels::ElementBytes(type_);
  kernels::ConvertToFloat32(type_, static_cast<const char*>(bytes_->data()) + row_idx * row_bytes, row_elems_, row.data());
  return row;
}

}  // namespace ridgeline::engine::benchmark
