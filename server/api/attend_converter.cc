#include "server/api/attend_converter.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/duration.pb.h"
#include "server/api/data_type.h"
#include "server/api/wire_reader.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::api {
namespace {

using kernels::attention::Algorithm;

// The overloads of data_type.h, beside this file's own.
using api::FromMessage;
using api::ToMessage;

// What the conversion of one message needs everywhere: where payloads lie, and who keeps them.
struct Source {
  const SplitMessage& split;
  std::shared_ptr<const void> owner;
};

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

absl::Status Convert(const v1::DenseKeyValue& message, const Source& source, std::optional<engine::DenseKeyValue>& dense) {
  dense.emplace();
  RIDGELINE_RETURN_IF_ERROR(Convert(message.has_key(), message.key(), "dense.key", source, dense->key));
  RIDGELINE_RETURN_IF_ERROR(Convert(message.has_value(), message.value(), "dense.value", source, dense->value));
  dense->lengths.assign(message.lengths().begin(), message.lengths().end());
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Algorithm>> FromMessage(v1::Algorithm algorithm) {
  switch (algorithm) {
    case v1::ALGORITHM_UNSPECIFIED:
      return std::nullopt;
    case v1::ALGORITHM_STANDARD:
      return Algorithm::kStandard;
    case v1::ALGORITHM_FLASH:
      return Algorithm::kFlash;
    default:
      return base::InvalidField("options.algorithm", absl::StrCat("algorithm is ", static_cast<int>(algorithm),
                                                                  "; there are 1 (standard) and 2 (flash)"));
  }
}

absl::Status Convert(const v1::AttentionOptions& message, const Source& source, engine::AttentionOptions& options) {
  RIDGELINE_ASSIGN_OR_RETURN(options.algorithm, FromMessage(message.algorithm()));
  if (message.has_scale()) options.scale = message.scale();
  options.causal = message.causal();
  if (message.has_window_left()) options.window_left = message.window_left();
  if (message.has_window_right()) options.window_right = message.window_right();
  options.logit_soft_cap = message.logit_soft_cap();
  RIDGELINE_RETURN_IF_ERROR(
      Convert(message.has_alibi_slopes(), message.alibi_slopes(), "options.alibi_slopes", source, options.alibi_slopes));
  RIDGELINE_RETURN_IF_ERROR(
      Convert(message.has_sink_logits(), message.sink_logits(), "options.sink_logits", source, options.sink_logits));
  return Convert(message.has_bias(), message.bias(), "options.bias", source, options.bias);
}

absl::Status Convert(const v1::OutputOptions& message, engine::OutputOptions& output) {
  output.log_sum_exp = message.log_sum_exp();
  output.discard = message.discard();
  if (message.has_shared_memory()) {
    output.shared_memory = {message.shared_memory().region(), message.shared_memory().offset_bytes()};
  }
  RIDGELINE_ASSIGN_OR_RETURN(output.data_type, FromMessage(message.data_type(), "output.data_type"));
  return absl::OkStatus();
}

absl::StatusOr<engine::AttendRequest> Convert(const v1::AttendRequest& message, const Source& source) {
  engine::AttendRequest request;
  RIDGELINE_RETURN_IF_ERROR(Convert(message.has_query(), message.query(), "query", source, request.query));
  request.query_lengths.assign(message.query_lengths().begin(), message.query_lengths().end());
  if (message.has_paged()) request.paged.emplace();
  if (message.has_dense()) RIDGELINE_RETURN_IF_ERROR(Convert(message.dense(), source, request.dense));
  RIDGELINE_RETURN_IF_ERROR(Convert(message.options(), source, request.options));
  RIDGELINE_RETURN_IF_ERROR(Convert(message.output(), request.output));
  return request;
}

google::protobuf::Duration ToMessage(absl::Duration duration) {
  google::protobuf::Duration message;
  const std::int64_t nanoseconds = absl::ToInt64Nanoseconds(duration);
  message.set_seconds(nanoseconds / 1'000'000'000);
  message.set_nanos(static_cast<std::int32_t>(nanoseconds % 1'000'000'000));
  return message;
}

v1::Bound ToMessage(engine::Bound bound) {
  switch (bound) {
    case engine::Bound::kMemory:
      return v1::BOUND_MEMORY;
    case engine::Bound::kCompute:
      return v1::BOUND_COMPUTE;
    case engine::Bound::kUnknown:
      break;
  }
  return v1::BOUND_UNSPECIFIED;
}

void Convert(const engine::ExecutionReport& report, v1::ExecutionReport& message) {
  message.set_device(report.device);
  message.set_kernel(report.kernel);
  message.set_kernel_reason(report.kernel_reason);
  message.set_algorithm(report.algorithm == Algorithm::kStandard ? v1::ALGORITHM_STANDARD : v1::ALGORITHM_FLASH);
  message.set_batch_requests(report.batch_requests);
  *message.mutable_queue_time() = ToMessage(report.queue_time);
  *message.mutable_upload_time() = ToMessage(report.upload_time);
  *message.mutable_kernel_time() = ToMessage(report.kernel_time);
  *message.mutable_download_time() = ToMessage(report.download_time);
  message.set_flops(report.flops);
  message.set_bytes(report.bytes);
  message.set_flops_per_second(report.flops_per_second);
  message.set_bytes_per_second(report.bytes_per_second);
  message.set_arithmetic_intensity(report.arithmetic_intensity);
  message.set_bound(ToMessage(report.bound));
  message.set_roof_fraction(report.roof_fraction);
  message.set_workspace_bytes(report.workspace_bytes);
  for (const engine::KernelPhase& phase : report.kernel_phases) {
    v1::KernelPhase& added = *message.add_kernel_phases();
    added.set_name(phase.name);
    *added.mutable_time() = ToMessage(phase.time);
  }
}

void Convert(const engine::OutputTensor& tensor, v1::Tensor& message) {
  message.set_data_type(ToMessage(tensor.data_type));
  for (const std::int64_t extent : tensor.shape) message.add_shape(extent);
}

}  // namespace

absl::StatusOr<engine::AttendRequest> ParseAttendRequest(absl::Span<const device::HostSlice> wire,
                                                         std::shared_ptr<const void> owner) {
  RIDGELINE_ASSIGN_OR_RETURN(const SplitMessage split, Split(*v1::AttendRequest::descriptor(), wire));
  v1::AttendRequest message;
  if (!message.ParseFromString(split.skeleton)) {
    return base::WithReason(absl::InvalidArgumentError("the request is not a valid ridgeline.v1.AttendRequest"),
                            base::kReasonMalformedMessage);
  }
  return Convert(message, Source{split, std::move(owner)});
}

v1::AttendResponse ToMessage(const engine::AttendResult& result) {
  v1::AttendResponse message;
  if (result.output.has_value()) Convert(*result.output, *message.mutable_output());
  if (result.log_sum_exp.has_value()) Convert(*result.log_sum_exp, *message.mutable_log_sum_exp());
  Convert(result.report, *message.mutable_report());
  return message;
}

}  // namespace ridgeline::api
