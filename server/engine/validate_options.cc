#include "server/engine/validate_options.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturating.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::engine {
namespace {

using base::InvalidField;
using base::Unsupported;
using kernels::DataType;
using kernels::ElementBytes;
using kernels::SaturatingMultiply;
using kernels::attention::AttentionShape;
using kernels::attention::kUnlimitedWindow;

absl::StatusOr<float> CheckScale(const std::optional<double>& scale, std::int64_t head_dim) {
  if (!scale.has_value()) return static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
  if (!IsFiniteFloat(*scale)) {
    return InvalidField("options.scale", absl::StrCat("is ", *scale, "; a finite float32 is needed"));
  }
  return static_cast<float>(*scale);
}

absl::StatusOr<float> CheckSoftCap(double cap) {
  const auto rounded = static_cast<float>(cap);
  // A positive cap that float32 rounds to 0 would turn from "flatten everything" into "no cap".
  if (std::isfinite(rounded) && cap >= 0 && (rounded > 0 || cap == 0)) return rounded;
  return InvalidField("options.logit_soft_cap", absl::StrCat("is ", cap, "; 0 (none) or a positive, finite float32 is needed"));
}

absl::StatusOr<std::int64_t> CheckWindow(const char* field, const std::optional<std::int64_t>& window) {
  if (!window.has_value()) return kUnlimitedWindow;
  if (*window < 0) return InvalidField(field, absl::StrCat("is ", *window, "; at least 0 is needed (unset: all keys)"));
  return std::min(*window, kUnlimitedWindow);
}

absl::Status CheckMask(const AttentionOptions& options, AttentionShape& shape) {
  RIDGELINE_ASSIGN_OR_RETURN(shape.window_left, CheckWindow("options.window_left", options.window_left));
  RIDGELINE_ASSIGN_OR_RETURN(shape.window_right, CheckWindow("options.window_right", options.window_right));
  if (options.causal) shape.window_right = 0;
  return absl::OkStatus();
}

absl::Status CheckPerHeadShape(const char* field, const Shape& shape, std::int64_t query_heads) {
  if (shape.size() == 1 && shape[0] == query_heads) return absl::OkStatus();
  return InvalidField(
      absl::StrCat(field, ".shape"),
      absl::StrCat("is ", FormatShape(shape), "; an element for each query head, [", query_heads, "], is needed"));
}

// A float32 for each query head, each of which passes `allowed`.
absl::StatusOr<std::optional<TensorSource>> TakePerHead(const char* field, std::optional<Tensor>& tensor,
                                                        std::int64_t query_heads, bool (*allowed)(float),
                                                        const char* what_is_allowed) {
  if (!tensor.has_value()) return std::optional<TensorSource>();
  RIDGELINE_ASSIGN_OR_RETURN(TensorSource source,
                             TakeFloat32(field, tensor, CheckPerHeadShape(field, tensor->shape, query_heads)));
  const std::vector<float> values = InlineValues(source);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!allowed(values[i])) {
      return InvalidField(absl::StrCat(field, ".inline_data"),
                          absl::StrCat("element ", i, " is ", values[i], "; ", what_is_allowed));
    }
  }
  return std::optional<TensorSource>(std::move(source));
}

}  // namespace

absl::StatusOr<TensorSource> TakeFloat32(const char* field, std::optional<Tensor>& tensor, const absl::Status& fits) {
  RIDGELINE_ASSIGN_OR_RETURN(const DataType type, CheckPresent(field, tensor));
  if (type != DataType::kFloat32) {
    return InvalidField(absl::StrCat(field, ".data_type"), absl::StrCat("is ", Name(type), "; float32 is needed"));
  }
  RIDGELINE_ASSIGN_OR_RETURN(const std::int64_t elements, CountElements(field, type, tensor->shape));
  RIDGELINE_RETURN_IF_ERROR(fits);
  return TakeSource(field, type, elements, *tensor);
}

absl::Status TakeOptions(AttentionOptions& options, const TokenLayout& query, AttendProblem& problem) {
  problem.algorithm = options.algorithm;
  RIDGELINE_ASSIGN_OR_RETURN(problem.scale, CheckScale(options.scale, query.head_dim));
  RIDGELINE_RETURN_IF_ERROR(CheckMask(options, problem.shape));
  RIDGELINE_ASSIGN_OR_RETURN(problem.logit_soft_cap, CheckSoftCap(options.logit_soft_cap));
  RIDGELINE_ASSIGN_OR_RETURN(problem.alibi_slopes,
                             TakePerHead(
                                 "options.alibi_slopes", options.alibi_slopes, query.heads,
                                 [](float slope) { return std::isfinite(slope); }, "finite slopes are needed"));
  RIDGELINE_ASSIGN_OR_RETURN(
      problem.sink_logits,
      TakePerHead(
          "options.sink_logits", options.sink_logits, query.heads,
          [](float logit) { return !std::isnan(logit) && logit != std::numeric_limits<float>::infinity(); },
          "finite logits or -inf (no sink) are needed"));
  return absl::OkStatus();
}

absl::Status PlanOutput(const OutputOptions& output, const Shape& query_shape, const TokenLayout& query,
                        AttendProblem& problem) {
  if (output.shared_memory.has_value()) {
    return Unsupported("output.shared_memory", "this server has no SharedMemoryService; results come inline");
  }
  const DataType type = output.data_type.value_or(problem.shape.data_type);
  RIDGELINE_RETURN_IF_ERROR(CheckFloatType("output.data_type", type));
  problem.shape.output_data_type = type;
  problem.discard = output.discard;

  problem.output_shape = query_shape;
  problem.output_shape.back() = problem.shape.value_head_dim;
  const std::int64_t rows = problem.query.elements / query.head_dim;  // of every query head
  problem.output_bytes = SaturatingMultiply({rows, problem.shape.value_head_dim, ElementBytes(type)});

  problem.lse_head_stride_elems = query.tokens;
  problem.wants_log_sum_exp = output.log_sum_exp;
  if (output.log_sum_exp) {
    problem.log_sum_exp_bytes = SaturatingMultiply({rows, static_cast<std::int64_t>(sizeof(float))});
    problem.log_sum_exp_shape = query.ragged ? Shape{query.heads, query.tokens} : Shape{query.batch, query.heads, query.tokens};
  }
  return absl::OkStatus();
}

}  // namespace ridgeline::engine
