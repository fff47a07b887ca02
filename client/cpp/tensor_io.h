// Arrays ⇄ tensors on the wire.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cpp/array.h"
#include "ridgeline/v1/tensor.pb.h"

namespace ridgeline::client {

// FLOAT16, BFLOAT16 and FLOAT32; nothing for the others, which no array can hold.
std::optional<ElementType> ElementTypeOf(v1::DataType type);
// UNSPECIFIED for float64, which the wire lacks.
v1::DataType DataTypeOf(ElementType type);

// The array inline; its bytes move, they are not copied. INVALID_ARGUMENT for float64: convert it first.
absl::StatusOr<v1::Tensor> ToTensor(Array array);

// A tensor that the device fills with normally distributed elements: nothing is sent.
v1::Tensor RandomTensor(v1::DataType type, absl::Span<const std::int64_t> shape, std::uint64_t seed);

// The inline elements of an answer; its bytes move. INTERNAL when the tensor isn't whole: a server must not send that.
absl::StatusOr<Array> FromTensor(v1::Tensor tensor);

}  // namespace ridgeline::client
