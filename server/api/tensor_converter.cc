#include "server/api/tensor_converter.h"

#include <cstdint>

#include "server/api/data_type.h"
#include "server/base/status_macros.h"

namespace ridgeline::api {

absl::StatusOr<engine::Tensor> FromMessage(const v1::Tensor& message, const std::string& field, const Source& source) {
  engine::Tensor tensor;
  RIDGELINE_ASSIGN_OR_RETURN(tensor.data_type, FromMessage(message.data_type(), field + ".data_type"));
  tensor.shape.assign(message.shape().begin(), message.shape().end());
  switch (message.storage_case()) {
    case v1::Tensor::kInlineData: {
      const Payload& payload = source.split.FindPayload(message.inline_data());
      tensor.storage = engine::InlineData{payload.slices, payload.size_bytes, source.owner};
      break;
    }
    case v1::Tensor::kSharedMemory:
      tensor.storage = engine::SharedMemorySlice{message.shared_memory().region(), message.shared_memory().offset_bytes()};
      break;
    case v1::Tensor::kRandom: {
      engine::RandomFill fill{.seed = message.random().seed(), .mean = message.random().mean()};
      if (message.random().has_standard_deviation()) fill.standard_deviation = message.random().standard_deviation();
      tensor.storage = fill;
      break;
    }
    case v1::Tensor::STORAGE_NOT_SET:
      break;
  }
  return tensor;
}

absl::Status Convert(bool present, const v1::Tensor& message, const std::string& field, const Source& source,
                     std::optional<engine::Tensor>& tensor) {
  if (!present) return absl::OkStatus();
  RIDGELINE_ASSIGN_OR_RETURN(tensor, FromMessage(message, field, source));
  return absl::OkStatus();
}

void Convert(const engine::OutputTensor& tensor, v1::Tensor& message) {
  message.set_data_type(ToMessage(tensor.data_type));
  for (const std::int64_t extent : tensor.shape) message.add_shape(extent);
}

google::protobuf::Duration ToMessage(absl::Duration duration) {
  google::protobuf::Duration message;
  const std::int64_t nanoseconds = absl::ToInt64Nanoseconds(duration);
  message.set_seconds(nanoseconds / 1'000'000'000);
  message.set_nanos(static_cast<std::int32_t>(nanoseconds % 1'000'000'000));
  return message;
}

google::protobuf::Timestamp ToMessage(absl::Time time) {
  google::protobuf::Timestamp message;
  const std::int64_t seconds = absl::ToUnixSeconds(time);  // rounds down: nanos are never negative
  message.set_seconds(seconds);
  message.set_nanos(static_cast<std::int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
  return message;
}

absl::Duration FromMessage(const google::protobuf::Duration& message) {
  return absl::Seconds(message.seconds()) + absl::Nanoseconds(message.nanos());
}

}  // namespace ridgeline::api
