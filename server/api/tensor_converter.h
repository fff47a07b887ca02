// Tensors and times between the wire's messages and the engine's structs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "ridgeline/v1/tensor.pb.h"
#include "server/api/wire_reader.h"
#include "server/engine/tensor.h"

namespace ridgeline::api {

// What the conversion of one message needs everywhere: where payloads lie, and who keeps them.
struct Source {
  const SplitMessage& split;
  std::shared_ptr<const void> owner;
};

// A tensor of the message in `source`; inline elements stay where they are. `field` is its path, for errors: INVALID_ARGUMENT
// for an enumerator that this server does not know. Shapes and sizes are the engine's to check.
absl::StatusOr<engine::Tensor> FromMessage(const v1::Tensor& message, const std::string& field, const Source& source);

// The same, if it is `present`.
absl::Status Convert(bool present, const v1::Tensor& message, const std::string& field, const Source& source,
                     std::optional<engine::Tensor>& tensor);

// All of it but the elements.
void Convert(const engine::OutputTensor& tensor, v1::Tensor& message);

google::protobuf::Duration ToMessage(absl::Duration duration);
google::protobuf::Timestamp ToMessage(absl::Time time);

// Of any value, also one that the well-known type does not allow; then saturated.
absl::Duration FromMessage(const google::protobuf::Duration& message);

}  // namespace ridgeline::api
