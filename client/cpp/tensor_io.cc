#include "client/cpp/tensor_io.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ridgeline::client {

std::optional<ElementType> ElementTypeOf(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_FLOAT16:
      return ElementType::kFloat16;
    case v1::DATA_TYPE_BFLOAT16:
      return ElementType::kBfloat16;
    case v1::DATA_TYPE_FLOAT32:
      return ElementType::kFloat32;
    default:
      return std::nullopt;
  }
}

v1::DataType DataTypeOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat16:
      return v1::DATA_TYPE_FLOAT16;
    case ElementType::kBfloat16:
      return v1::DATA_TYPE_BFLOAT16;
    case ElementType::kFloat32:
      return v1::DATA_TYPE_FLOAT32;
    case ElementType::kFloat64:
      break;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

absl::StatusOr<v1::Tensor> ToTensor(Array array) {
  const v1::DataType type = DataTypeOf(array.type);
  if (type == v1::DATA_TYPE_UNSPECIFIED) {
    return absl::InvalidArgumentError(
        absl::StrCat("elements are ", ElementTypeName(array.type), "; float32, float16 and bfloat16 can be sent"));
  }
  v1::Tensor tensor;
  tensor.set_data_type(type);
  tensor.mutable_shape()->Add(array.shape.begin(), array.shape.end());
  tensor.set_inline_data(std::move(array.bytes));
  return tensor;
}

v1::Tensor RandomTensor(v1::DataType type, absl::Span<const std::int64_t> shape, std::uint64_t seed) {
  v1::Tensor tensor;
  tensor.set_data_type(type);
  tensor.mutable_shape()->Add(shape.begin(), shape.end());
  tensor.mutable_random()->set_seed(seed);
  return tensor;
}

absl::StatusOr<Array> FromTensor(v1::Tensor tensor) {
  const std::optional<ElementType> type = ElementTypeOf(tensor.data_type());
  if (!type.has_value()) {
    return absl::InternalError(absl::StrCat("the answer's element type is ", v1::DataType_Name(tensor.data_type())));
  }
  Array array{*type, {tensor.shape().begin(), tensor.shape().end()}, std::move(*tensor.mutable_inline_data())};
  const std::optional<std::int64_t> bytes = ByteCount(array.shape, ElementBytes(*type));
  if (bytes != static_cast<std::int64_t>(array.bytes.size())) {
    return absl::InternalError(absl::StrCat("the answer's shape is ", ShapeString(array.shape), " of ", ElementTypeName(*type),
                                            ", but it carries ", array.bytes.size(), " bytes"));
  }
  return array;
}

}  // namespace ridgeline::client
