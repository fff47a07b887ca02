// Element types between the wire and the kernels.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/common/data_type.h"
#include "ridgeline/v1/tensor.pb.h"

namespace ridgeline::api {

v1::DataType ToMessage(kernels::DataType type);

// Null for DATA_TYPE_UNSPECIFIED. INVALID_ARGUMENT naming `field` for a number that is no type.
absl::StatusOr<std::optional<kernels::DataType>> FromMessage(v1::DataType type, std::string_view field);

}  // namespace ridgeline::api
