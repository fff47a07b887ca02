// Tensors of requests from files.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "ridgeline/v1/tensor.pb.h"

namespace ridgeline::cli {

// The array in a .npy file, in `type`; UNSPECIFIED: in its own. A usage error for float64, which has no type on the wire.
absl::StatusOr<v1::Tensor> TensorFromFile(const std::string& path, v1::DataType type);

}  // namespace ridgeline::cli
