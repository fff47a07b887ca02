#include "server/engine/validate_fuse.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/saturating.h"
#include "kernels/fused/op_info.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/engine/fuse_fields.h"
#include "server/engine/fused_ops.h"
#include "server/engine/validate_rope_append.h"

namespace ridgeline::engine {
namespace {

using base::InvalidField;
using kernels::DataType;
using kernels::SaturatingMultiply;
using kernels::fused::InfoOf;
using kernels::fused::OpInfo;
using kernels::fused::Use;

// The tensor that sets type, rows and columns, with at least `min_rank` dimensions.
absl::Status TakeInput(const std::string& field, std::optional<Tensor>& tensor, std::size_t min_rank, FuseProblem& problem) {
  RIDGELINE_ASSIGN_OR_RETURN(const DataType type, CheckPresent(field.c_str(), tensor));
  RIDGELINE_RETURN_IF_ERROR(CheckFloatType(absl::StrCat(field, ".data_type"), type));
  RIDGELINE_ASSIGN_OR_RETURN(const std::int64_t elements, CountElements(field.c_str(), type, tensor->shape));
  const std::size_t rank = tensor->shape.size();
  const std::string shape_field = absl::StrCat(field, ".shape");
  if (rank < min_rank || rank > kMaxFusedRank) {
    return InvalidField(shape_field,
                        absl::StrCat("has rank ", rank, "; ", min_rank, " to ", kMaxFusedRank, " dimensions are allowed"));
  }
  // Of a rotary embedding a row has two dimensions, heads and head_dim.
  const std::int64_t row_elems =
      min_rank == 1 ? tensor->shape.back() : SaturatingMultiply({tensor->shape[rank - 2], tensor->shape[rank - 1]});
  RIDGELINE_RETURN_IF_ERROR(CheckRowElems(shape_field, row_elems));
  RIDGELINE_ASSIGN_OR_RETURN(problem.input, TakeSource(field.c_str(), type, elements, *tensor));
  problem.output_shape = tensor->shape;
  problem.shape.data_type = type;
  problem.shape.row_elems = row_elems;
  problem.shape.num_rows = elements / row_elems;
  return absl::OkStatus();
}

absl::Status TakeColumns(const std::string& field, Use use, std::optional<Tensor>& tensor, const FuseProblem& problem,
                         bool& has, TensorSource& source) {
  has = use == Use::kRequired || (use == Use::kOptional && tensor.has_value());
  if (!has) return absl::OkStatus();
  RIDGELINE_ASSIGN_OR_RETURN(
      source, TakeShaped(field, tensor, problem.shape.data_type, {problem.shape.row_elems}, "an element for each column"));
  return absl::OkStatus();
}

absl::Status TakeRope(const FuseFields& fields, FuseRequest& request, FuseProblem& problem) {
  RIDGELINE_RETURN_IF_ERROR(TakeRopeOptions(fields, request, problem.output_shape.back(), problem.shape));
  const Shape tokens(problem.output_shape.begin(), problem.output_shape.end() - 2);
  problem.shape.has_positions = request.positions.has_value();
  if (request.positions.has_value()) {
    RIDGELINE_ASSIGN_OR_RETURN(problem.positions, TakePositions(fields.Path("positions"), request.positions, tokens));
    return absl::OkStatus();
  }
  // Rows are then numbered from 0, which is right for one sequence alone.
  const bool is_one_sequence =
      tokens.empty() || std::all_of(tokens.begin(), tokens.end() - 1, [](std::int64_t extent) { return extent == 1; });
  if (is_one_sequence) return absl::OkStatus();
  return InvalidField(fields.Path("positions"),
                      absl::StrCat("is missing; an input of several sequences needs it, ", FormatShape(tokens), " of int64"));
}

absl::StatusOr<FuseProblem> ValidateRows(FuseRequest& request) {
  const OpInfo& info = InfoOf(*request.op);
  const FuseFields fields(info.op);
  FuseProblem problem;
  problem.shape.op = info.op;
  const std::size_t min_rank = info.has_rope ? 2 : 1;
  RIDGELINE_RETURN_IF_ERROR(TakeInput(fields.Path(InputName(info.op)), request.input, min_rank, problem));
  if (info.has_rope && problem.output_shape.back() > kernels::fused::kMaxHeadDim) {
    return InvalidField(fields.Path("input.shape"), absl::StrCat("has head_dim ", problem.output_shape.back(), "; 2 to ",
                                                                 kernels::fused::kMaxHeadDim, " are allowed"));
  }
  if (info.other != Use::kNone) {
    const std::string needed = absl::StrCat("the ", InputName(info.op), "'s shape");
    RIDGELINE_ASSIGN_OR_RETURN(problem.other, TakeShaped(fields.Path(info.other_name), request.other, problem.shape.data_type,
                                                         problem.output_shape, needed));
  }
  RIDGELINE_RETURN_IF_ERROR(
      TakeColumns(fields.Path("weight"), info.weight, request.weight, problem, problem.shape.has_weight, problem.weight));
  RIDGELINE_RETURN_IF_ERROR(
      TakeColumns(fields.Path("bias"), info.bias, request.bias, problem, problem.shape.has_bias, problem.bias));
  RIDGELINE_RETURN_IF_ERROR(TakeRowOptions(fields, request, problem.shape));
  if (info.has_rope) RIDGELINE_RETURN_IF_ERROR(TakeRope(fields, request, problem));
  return problem;
}

}  // namespace

absl::StatusOr<FuseProblem> ValidateFuse(const kv_cache::Caller& caller, FuseRequest request, kv_cache::KvCacheStore& store) {
  if (!request.op.has_value()) return InvalidField("op", "is missing; ListFusedOps has the operations");
  const OpInfo& info = InfoOf(*request.op);
  RIDGELINE_ASSIGN_OR_RETURN(FuseProblem problem,
                             info.appends ? ValidateRopeAppend(caller, request, store) : ValidateRows(request));
  problem.requested_mode = request.mode;
  problem.discard = request.discard;
  // What the kernels' own rules say beyond those above.
  const std::string why_not = kernels::fused::WhyNot(problem.shape);
  if (!why_not.empty()) return InvalidField(info.name, why_not);
  return problem;
}

}  // namespace ridgeline::engine
