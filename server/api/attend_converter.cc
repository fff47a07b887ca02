#include "server/api/attend_converter.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/api/data_type.h"
#include "server/api/report_converter.h"
#include "server/api/tensor_converter.h"
#include "server/api/wire_reader.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::api {
namespace {

using kernels::attention::Algorithm;

// The overloads of data_type.h and tensor_converter.h, beside this file's own.
using api::Convert;
using api::FromMessage;
using api::ToMessage;

absl::Status Convert(const v1::DenseKeyValue& message, const Source& source, std::optional<engine::DenseKeyValue>& dense) {
  dense.emplace();
  RIDGELINE_RETURN_IF_ERROR(Convert(message.has_key(), message.key(), "dense.key", source, dense->key));
  RIDGELINE_RETURN_IF_ERROR(Convert(message.has_value(), message.value(), "dense.value", source, dense->value));
  dense->lengths.assign(message.lengths().begin(), message.lengths().end());
  return absl::OkStatus();
}

absl::Status Convert(const v1::PagedKeyValue& message, const Source& source, std::optional<engine::PagedKeyValue>& paged) {
  paged.emplace();
  paged->sequences.assign(message.sequences().begin(), message.sequences().end());
  paged->layer = message.layer();
  RIDGELINE_RETURN_IF_ERROR(Convert(message.has_new_key(), message.new_key(), "paged.new_key", source, paged->new_key));
  return Convert(message.has_new_value(), message.new_value(), "paged.new_value", source, paged->new_value);
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
  if (message.has_paged()) RIDGELINE_RETURN_IF_ERROR(Convert(message.paged(), source, request.paged));
  if (message.has_dense()) RIDGELINE_RETURN_IF_ERROR(Convert(message.dense(), source, request.dense));
  RIDGELINE_RETURN_IF_ERROR(Convert(message.options(), source, request.options));
  RIDGELINE_RETURN_IF_ERROR(Convert(message.output(), request.output));
  return request;
}

}  // namespace

absl::StatusOr<engine::AttendRequest> ParseAttendRequest(absl::Span<const device::HostSlice> wire,
                                                         std::shared_ptr<const void> owner) {
  RIDGELINE_ASSIGN_OR_RETURN(const SplitMessage split, Split(*v1::AttendRequest::descriptor(), wire));
  v1::AttendRequest message;
  RIDGELINE_RETURN_IF_ERROR(ParseSkeleton(split, message));
  return Convert(message, Source{split, std::move(owner)});
}

v1::AttendResponse ToMessage(const engine::AttendResult& result) {
  v1::AttendResponse message;
  if (result.output.has_value()) Convert(*result.output, *message.mutable_output());
  if (result.log_sum_exp.has_value()) Convert(*result.log_sum_exp, *message.mutable_log_sum_exp());
  *message.mutable_report() = ToMessage(result.report);
  return message;
}

}  // namespace ridgeline::api
