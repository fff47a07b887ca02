// What is checked of any tensor argument, whatever the operation: type, extents, storage. Errors name the field by its path in
// the request, which `field` begins: "dense.key" makes "dense.key.inline_data".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/common/data_type.h"
#include "server/engine/tensor.h"

namespace ridgeline::engine {

using Shape = std::vector<std::int64_t>;

// A checked argument: where its elements come from and how many there are.
struct TensorSource {
  kernels::DataType data_type = kernels::DataType::kFloat32;
  std::int64_t elements = 0;
  std::variant<InlineData, RandomFill> storage;  // inline: size_bytes() bytes, exactly

  std::int64_t size_bytes() const { return elements * kernels::ElementBytes(data_type); }
};

// "[2, 64, 8, 128]"; a client may send a million dimensions, an error shows eight.
std::string FormatShape(const Shape& shape);

// Finite as given and as the float32 that the device computes with.
bool IsFiniteFloat(double value);

// The tensor's type, if there is a tensor and it has one.
absl::StatusOr<kernels::DataType> CheckPresent(const char* field, const std::optional<Tensor>& tensor);

// Ok for float32, float16 and bfloat16. `field` is the type's own path.
absl::Status CheckFloatType(const std::string& field, kernels::DataType type);

// Product of the extents; none is negative and the bytes do not overflow.
absl::StatusOr<std::int64_t> CountElements(const char* field, kernels::DataType type, const Shape& shape);

// Takes the storage of a tensor whose type and shape have been checked.
absl::StatusOr<TensorSource> TakeSource(const char* field, kernels::DataType type, std::int64_t elements, Tensor& tensor);

// The elements of a small float32 tensor with inline storage; none of a random one, whose elements are fine by construction.
std::vector<float> InlineValues(const TensorSource& source);

}  // namespace ridgeline::engine
