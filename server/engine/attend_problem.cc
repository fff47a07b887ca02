#include "server/engine/attend_problem.h"

#include "kernels/common/saturating.h"

namespace ridgeline::engine {

using kernels::SaturatingAdd;

std::int64_t AttendProblem::tensor_bytes() const {
  std::int64_t bytes = sequence_table_bytes();
  for (const TensorSource* source : {&query, &key, &value}) bytes = SaturatingAdd(bytes, source->size_bytes());
  for (const auto* source : {&alibi_slopes, &sink_logits, &bias}) {
    if (source->has_value()) bytes = SaturatingAdd(bytes, (*source)->size_bytes());
  }
  return SaturatingAdd(SaturatingAdd(bytes, output_bytes), log_sum_exp_bytes);
}

std::int64_t AttendProblem::answer_bytes() const { return discard ? 0 : SaturatingAdd(output_bytes, log_sum_exp_bytes); }

kernels::attention::OptionalTensors AttendProblem::optional_tensors() const {
  return {.log_sum_exp = wants_log_sum_exp, .bias_bytes = bias.has_value() ? bias->size_bytes() : 0};
}

}  // namespace ridgeline::engine
