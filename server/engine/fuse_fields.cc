#include "server/engine/fuse_fields.h"

#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/fused/op_info.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::engine {

using base::InvalidField;
using kernels::DataType;
using kernels::fused::FusedShape;
using kernels::fused::InfoOf;

FuseFields::FuseFields(kernels::fused::Op op) : op_(InfoOf(op).name) {}

std::string FuseFields::Path(absl::string_view field) const { return absl::StrCat(op_, ".", field); }

absl::StatusOr<TensorSource> TakeShaped(const std::string& field, std::optional<Tensor>& tensor, DataType type,
                                        const Shape& shape, absl::string_view needed) {
  RIDGELINE_ASSIGN_OR_RETURN(const DataType given, CheckPresent(field.c_str(), tensor));
  if (given != type) {
    return InvalidField(absl::StrCat(field, ".data_type"), absl::StrCat("is ", Name(given), "; ", Name(type), " is needed"));
  }
  RIDGELINE_ASSIGN_OR_RETURN(const std::int64_t elements, CountElements(field.c_str(), type, tensor->shape));
  if (tensor->shape != shape) {
    return InvalidField(absl::StrCat(field, ".shape"),
                        absl::StrCat("is ", FormatShape(tensor->shape), "; ", needed, ", ", FormatShape(shape), ", is needed"));
  }
  return TakeSource(field.c_str(), type, elements, *tensor);
}

absl::StatusOr<TensorSource> TakePositions(const std::string& field, std::optional<Tensor>& tensor, const Shape& shape) {
  if (tensor.has_value() && std::holds_alternative<RandomFill>(tensor->storage)) {
    return InvalidField(absl::StrCat(field, ".random"), "makes no integers; send inline_data");
  }
  return TakeShaped(field, tensor, DataType::kInt64, shape, "one for each token");
}

absl::Status TakeRowOptions(const FuseFields& fields, const FuseRequest& request, FusedShape& shape) {
  const kernels::fused::OpInfo& info = InfoOf(shape.op);
  if (info.has_epsilon && request.epsilon.has_value()) {
    if (!IsFiniteFloat(*request.epsilon) || *request.epsilon < 0) {
      return InvalidField(fields.Path("epsilon"),
                          absl::StrCat("is ", *request.epsilon, "; a finite float32 of at least 0 is needed"));
    }
    shape.epsilon = *request.epsilon;
  }
  shape.gelu_form = request.gelu_form;
  if (!info.has_dropout) return absl::OkStatus();
  const double probability = request.dropout.probability;
  if (!(probability >= 0 && probability <= 1)) {
    return InvalidField(fields.Path("probability"), absl::StrCat("is ", probability, "; 0 to 1 is allowed"));
  }
  shape.dropout = request.dropout;
  shape.has_mask = request.return_mask;
  return absl::OkStatus();
}

absl::Status TakeRopeOptions(const FuseFields& fields, const FuseRequest& request, std::int64_t head_dim, FusedShape& shape) {
  const std::int64_t rotary_dim = request.rotary_dim == 0 ? head_dim : request.rotary_dim;
  if (rotary_dim < 2 || rotary_dim > head_dim || rotary_dim % 2 != 0) {
    return InvalidField(fields.Path("rotary_dim"),
                        absl::StrCat("is ", rotary_dim, request.rotary_dim == 0 ? " (head_dim)" : "",
                                     "; an even number from 2 to head_dim, ", head_dim, ", is needed"));
  }
  const double base = request.base.value_or(shape.rope.base);
  if (!(base > 0 && std::isfinite(base))) {
    return InvalidField(fields.Path("base"), absl::StrCat("is ", base, "; a positive, finite number is needed"));
  }
  shape.rope = {.layout = request.rope_layout, .head_dim = head_dim, .rotary_dim = rotary_dim, .base = base};
  return absl::OkStatus();
}

absl::Status CheckRowElems(const std::string& shape_field, std::int64_t row_elems) {
  if (row_elems >= 1 && row_elems <= kernels::fused::kMaxRowElems) return absl::OkStatus();
  return InvalidField(
      shape_field, absl::StrCat("has rows of ", row_elems, " elements; 1 to ", kernels::fused::kMaxRowElems, " are allowed"));
}

}  // namespace ridgeline::engine
