#include "server/engine/benchmark/matrix_types.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace ridgeline::engine::benchmark {

using kernels::DataType;
using kernels::microbench::MatrixType;
using kernels::microbench::MatrixUnit;

absl::Span<const MatrixTypeRow> MatrixTypes() {
  static constexpr MatrixTypeRow kRows[] = {{"tf32", MatrixType::kTf32, DataType::kFloat32, false},
                                            {"float16", MatrixType::kFloat16, DataType::kFloat16, true},
                                            {"bfloat16", MatrixType::kBFloat16, DataType::kBFloat16, true},
                                            {"float8_e4m3", MatrixType::kFloat8E4M3, DataType::kFloat8E4M3, false},
                                            {"float8_e5m2", MatrixType::kFloat8E5M2, DataType::kFloat8E5M2, false},
                                            {"int8", MatrixType::kInt8, DataType::kUint8, false}};
  return kRows;
}

const MatrixTypeRow* FindMatrixType(std::string_view name) {
  const absl::Span<const MatrixTypeRow> rows = MatrixTypes();
  const auto* const found = std::find_if(rows.begin(), rows.end(), [&](const MatrixTypeRow& row) { return name == row.name; });
  return found == rows.end() ? nullptr : found;
}

absl::Status CheckMatrixUnit(const device::DeviceInfo& device, MatrixUnit unit, const MatrixTypeRow& type) {
  const std::string& instruction_set = device.instruction_set;
  if (unit == MatrixUnit::kWgmma && instruction_set != "sm_90") {
    return absl::UnimplementedError(absl::StrCat("wgmma is an instruction of sm_90; this device is ", instruction_set));
  }
  const bool is_float8 = type.data_type == DataType::kFloat8E4M3 || type.data_type == DataType::kFloat8E5M2;
  const bool is_old = instruction_set == "sm_80" || instruction_set == "sm_86";
  if (is_float8 && (is_old || (unit == MatrixUnit::kMma && instruction_set == "sm_90"))) {
    return absl::UnimplementedError(absl::StrCat("mma has no 8-bit floats on ", instruction_set,
                                                 is_old ? "" : ", where it widens them first; wgmma has them"));
  }
  return absl::OkStatus();
}

}  // namespace ridgeline::engine::benchmark
