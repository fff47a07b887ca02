#include "server/api/fuse_converter.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/fused/op_info.h"
#include "server/api/data_type.h"
#include "server/api/report_converter.h"
#include "server/api/tensor_converter.h"
#include "server/api/wire_reader.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::api {
namespace {

using engine::FuseRequest;
using kernels::fused::GeluForm;
using kernels::fused::Mode;
using kernels::fused::Op;
using kernels::fused::RopeLayout;

absl::Status UnknownEnumerator(const std::string& field, int value, const char* known) {
  return base::InvalidField(field, absl::StrCat("is ", value, "; there are ", known));
}

absl::StatusOr<std::optional<Mode>> FromMessage(v1::ExecutionMode mode) {
  switch (mode) {
    case v1::EXECUTION_MODE_UNSPECIFIED:
      return std::nullopt;
    case v1::EXECUTION_MODE_FUSED:
      return Mode::kFused;
    case v1::EXECUTION_MODE_UNFUSED:
      return Mode::kUnfused;
    default:
      return UnknownEnumerator("mode", mode, "1 (fused) and 2 (unfused)");
  }
}

// Takes the fields of one operation's message. The first error stays; the rest is then not looked at.
class FieldReader {
 public:
  FieldReader(Op op, const Source& source, FuseRequest& request)
      : name_(kernels::fused::Name(op)), source_(source), request_(request) {
    request_.op = op;
  }

  FieldReader& Take(bool present, const v1::Tensor& message, const char* field, std::optional<engine::Tensor>& tensor) {
    status_.Update(Convert(present, message, Path(field), source_, tensor));
    return *this;
  }

  FieldReader& Take(v1::GeluForm form) {
    switch (form) {
      case v1::GELU_FORM_UNSPECIFIED:
      case v1::GELU_FORM_ERF:
        request_.gelu_form = GeluForm::kErf;
        return *this;
      case v1::GELU_FORM_TANH:
        request_.gelu_form = GeluForm::kTanh;
        return *this;
      default:
        status_.Update(UnknownEnumerator(Path("form"), form, "1 (erf) and 2 (tanh)"));
        return *this;
    }
  }

  template <typename Message>
  FieldReader& TakeEpsilon(const Message& message) {
    if (message.has_epsilon()) request_.epsilon = message.epsilon();
    return *this;
  }

  template <typename Message>
  FieldReader& TakeRope(const Message& message) {
    Take(message.has_positions(), message.positions(), "positions", request_.positions);
    request_.rotary_dim = message.rotary_dim();
    if (message.has_base()) request_.base = message.base();
    switch (message.layout()) {
      case v1::ROPE_LAYOUT_UNSPECIFIED:
      case v1::ROPE_LAYOUT_HALF_SPLIT:
        request_.rope_layout = RopeLayout::kHalfSplit;
        return *this;
      case v1::ROPE_LAYOUT_INTERLEAVED:
        request_.rope_layout = RopeLayout::kInterleaved;
        return *this;
      default:
        status_.Update(UnknownEnumerator(Path("layout"), message.layout(), "1 (half split) and 2 (interleaved)"));
        return *this;
    }
  }

  const absl::Status& status() const { return status_; }

 private:
  std::string Path(const char* field) const { return absl::StrCat(name_, ".", field); }

  const char* const name_;
  const Source& source_;
  FuseRequest& request_;
  absl::Status status_;
};

absl::Status Read(const v1::LayerNorm& message, const Source& source, FuseRequest& request) {
  return FieldReader(Op::kLayerNorm, source, request)
      .Take(message.has_input(), message.input(), "input", request.input)
      .Take(message.has_weight(), message.weight(), "weight", request.weight)
      .Take(message.has_bias(), message.bias(), "bias", request.bias)
      .TakeEpsilon(message)
      .status();
}

absl::Status Read(const v1::RmsNorm& message, const Source& source, FuseRequest& request) {
  return FieldReader(Op::kRmsNorm, source, request)
      .Take(message.has_input(), message.input(), "input", request.input)
      .Take(message.has_weight(), message.weight(), "weight", request.weight)
      .TakeEpsilon(message)
      .status();
}

absl::Status Read(const v1::Softmax& message, const Source& source, FuseRequest& request) {
  return FieldReader(Op::kSoftmax, source, request).Take(message.has_input(), message.input(), "input", request.input).status();
}

absl::Status Read(const v1::Gelu& message, const Source& source, FuseRequest& request) {
  return FieldReader(Op::kGelu, source, request)
      .Take(message.has_input(), message.input(), "input", request.input)
      .Take(message.form())
      .status();
}

absl::Status Read(const v1::BiasGelu& message, const Source& source, FuseRequest& request) {
  return FieldReader(Op::kBiasGelu, source, request)
      .Take(message.has_input(), message.input(), "input", request.input)
      .Take(message.has_bias(), message.bias(), "bias", request.bias)
      .Take(message.form())
      .status();
}

absl::Status Read(const v1::GeluAdd& message, const Source& source, FuseRequest& request) {
  return FieldReader(Op::kGeluAdd, source, request)
      .Take(message.has_input(), message.input(), "input", request.input)
      .Take(message.has_residual(), message.residual(), "residual", request.other)
      .Take(message.form())
      .status();
}

absl::Status Read(const v1::AddLayerNorm& message, const Source& source, FuseRequest& request) {
  return FieldReader(Op::kAddLayerNorm, source, request)
      .Take(message.has_input(), message.input(), "input", request.input)
      .Take(message.has_residual(), message.residual(), "residual", request.other)
      .Take(message.has_weight(), message.weight(), "weight", request.weight)
      .Take(message.has_bias(), message.bias(), "bias", request.bias)
      .TakeEpsilon(message)
      .status();
}

absl::Status Read(const v1::AddRmsNorm& message, const Source& source, FuseRequest& request) {
  return FieldReader(Op::kAddRmsNorm, source, request)
      .Take(message.has_input(), message.input(), "input", request.input)
      .Take(message.has_residual(), message.residual(), "residual", request.other)
      .Take(message.has_weight(), message.weight(), "weight", request.weight)
      .TakeEpsilon(message)
      .status();
}

absl::Status Read(const v1::LayerNormGeluDropout& message, const Source& source, FuseRequest& request) {
  request.dropout = {.probability = message.probability(), .seed = message.seed(), .offset = message.offset()};
  request.return_mask = message.return_mask();
  return FieldReader(Op::kLayerNormGeluDropout, source, request)
      .Take(message.has_input(), message.input(), "input", request.input)
      .Take(message.has_weight(), message.weight(), "weight", request.weight)
      .Take(message.has_bias(), message.bias(), "bias", request.bias)
      .TakeEpsilon(message)
      .Take(message.form())
      .status();
}

absl::Status Read(const v1::Swiglu& message, const Source& source, FuseRequest& request) {
  return FieldReader(Op::kSwiglu, source, request)
      .Take(message.has_gate(), message.gate(), "gate", request.input)
      .Take(message.has_up(), message.up(), "up", request.other)
      .status();
}

absl::Status Read(const v1::Rope& message, const Source& source, FuseRequest& request) {
  return FieldReader(Op::kRope, source, request)
      .Take(message.has_input(), message.input(), "input", request.input)
      .TakeRope(message)
      .status();
}

absl::Status Read(const v1::RopeAppend& message, const Source& source, FuseRequest& request) {
  request.append.sequences.assign(message.sequences().begin(), message.sequences().end());
  request.append.layer = message.layer();
  request.append.lengths.assign(message.lengths().begin(), message.lengths().end());
  return FieldReader(Op::kRopeAppend, source, request)
      .Take(message.has_query(), message.query(), "query", request.input)
      .Take(message.has_new_key(), message.new_key(), "new_key", request.append.new_key)
      .Take(message.has_new_value(), message.new_value(), "new_value", request.append.new_value)
      .TakeRope(message)
      .status();
}

// Without an operation: the engine says that it is missing.
absl::Status ReadOp(const v1::FuseRequest& message, const Source& source, FuseRequest& request) {
  switch (message.op_case()) {
    case v1::FuseRequest::kLayerNorm:
      return Read(message.layer_norm(), source, request);
    case v1::FuseRequest::kRmsNorm:
      return Read(message.rms_norm(), source, request);
    case v1::FuseRequest::kSoftmax:
      return Read(message.softmax(), source, request);
    case v1::FuseRequest::kGelu:
      return Read(message.gelu(), source, request);
    case v1::FuseRequest::kBiasGelu:
      return Read(message.bias_gelu(), source, request);
    case v1::FuseRequest::kGeluAdd:
      return Read(message.gelu_add(), source, request);
    case v1::FuseRequest::kAddLayerNorm:
      return Read(message.add_layer_norm(), source, request);
    case v1::FuseRequest::kAddRmsNorm:
      return Read(message.add_rms_norm(), source, request);
    case v1::FuseRequest::kLayerNormGeluDropout:
      return Read(message.layer_norm_gelu_dropout(), source, request);
    case v1::FuseRequest::kSwiglu:
      return Read(message.swiglu(), source, request);
    case v1::FuseRequest::kRope:
      return Read(message.rope(), source, request);
    case v1::FuseRequest::kRopeAppend:
      return Read(message.rope_append(), source, request);
    case v1::FuseRequest::OP_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

void Convert(const engine::FusedOpTensor& tensor, v1::FusedOpTensor& message) {
  message.set_name(tensor.name);
  message.set_shape(tensor.shape);
  message.set_optional(tensor.optional);
  if (tensor.data_type.has_value()) message.set_data_type(ToMessage(*tensor.data_type));
}

}  // namespace

absl::StatusOr<engine::FuseRequest> ParseFuseRequest(absl::Span<const device::HostSlice> wire,
                                                     std::shared_ptr<const void> owner) {
  RIDGELINE_ASSIGN_OR_RETURN(const SplitMessage split, Split(*v1::FuseRequest::descriptor(), wire));
  v1::FuseRequest message;
  RIDGELINE_RETURN_IF_ERROR(ParseSkeleton(split, message));
  FuseRequest request;
  RIDGELINE_ASSIGN_OR_RETURN(request.mode, FromMessage(message.mode()));
  request.discard = message.output().discard();
  RIDGELINE_RETURN_IF_ERROR(ReadOp(message, Source{split, std::move(owner)}, request));
  return request;
}

v1::FuseResponse ToMessage(const engine::FuseResult& result) {
  v1::FuseResponse message;
  *message.mutable_report() = ToMessage(result.report);
  message.set_kernel_count(result.kernel_count);
  message.mutable_lengths()->Add(result.lengths.begin(), result.lengths.end());
  return message;
}

v1::FusedOp ToMessage(const engine::FusedOpDescription& op) {
  v1::FusedOp message;
  message.set_name(op.name);
  message.set_formula(op.formula);
  for (const engine::FusedOpTensor& input : op.inputs) Convert(input, *message.add_inputs());
  for (const engine::FusedOpTensor& output : op.outputs) Convert(output, *message.add_outputs());
  for (const engine::FusedOpOption& option : op.options) {
    v1::FusedOpOption& added = *message.add_options();
    added.set_name(option.name);
    added.set_allowed(option.allowed);
    added.set_default_value(option.default_value);
  }
  for (const kernels::DataType type : engine::kFusedDataTypes) message.add_data_types(ToMessage(type));
  message.set_max_row_elements(kernels::fused::kMaxRowElems);
  message.set_max_head_dim(op.max_head_dim);
  message.set_unfused_kernel_count(op.unfused_kernel_count);
  return message;
}

}  // namespace ridgeline::api
