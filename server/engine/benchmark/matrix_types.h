// The types that a GPU's matrix unit multiplies, as benchmarks name them.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/common/data_type.h"
#include "kernels/microbench/compute_peak.h"
#include "server/device/device.h"

namespace ridgeline::engine::benchmark {

struct MatrixTypeRow {
  const char* name;  // "tf32"
  kernels::microbench::MatrixType type;
  kernels::DataType data_type;
  bool has_roof;  // a measured one
};

absl::Span<const MatrixTypeRow> MatrixTypes();

// Null: the matrix unit has none of that name.
const MatrixTypeRow* FindMatrixType(std::string_view name);

// UNIMPLEMENTED, with the reason, where a device's matrix unit has no such product.
absl::Status CheckMatrixUnit(const device::DeviceInfo& device, kernels::microbench::MatrixUnit unit, const MatrixTypeRow& type);

}  // namespace ridgeline::engine::benchmark
