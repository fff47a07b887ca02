// The gate for Attend: what came is either a problem that every later step may trust, or an error that names the field.
//
// Nothing behind this gate checks shapes again. It costs microseconds, allocates nothing in proportion to a number that a
// client merely wrote down, and computes sizes in arithmetic that cannot overflow.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cost.h"
#include "server/engine/attend_request.h"
#include "server/engine/check_tensor.h"

namespace ridgeline::engine {

// Bounds of the server's own, far beyond any model: tables and loops over sequences and heads stay small whatever a shape says.
inline constexpr std::int64_t kMaxSequences = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxHeads = std::int64_t{1} << 16;

// One attention call, checked. Layouts are those of kernels::attention::AttentionParams.
struct AttendProblem {
  kernels::attention::AttentionShape shape;
  std::vector<kernels::attention::Sequence> sequences;
  std::optional<kernels::attention::Algorithm> algorithm;  // unset: the device's choice
  float scale = 0;
  float logit_soft_cap = 0;

  TensorSource query;
  TensorSource key;
  TensorSource value;
  std::optional<TensorSource> alibi_slopes;  // [Hq]
  std::optional<TensorSource> sink_logits;   // [Hq]
  std::optional<TensorSource> bias;          // [1 or batch, 1 or Hq, Sq, Sk]
  std::int64_t bias_sequence_stride_elems = 0;
  std::int64_t bias_head_stride_elems = 0;
  std::int64_t bias_row_stride_elems = 0;

  std::vector<std::int64_t> output_shape;
  std::int64_t output_bytes = 0;
  std::vector<std::int64_t> log_sum_exp_shape;  // empty unless asked for
  std::int64_t log_sum_exp_bytes = 0;
  std::int64_t lse_head_stride_elems = 0;
  bool wants_log_sum_exp = false;
  bool discard = false;

  std::int64_t sequence_table_bytes() const {
    return static_cast<std::int64_t>(sequences.size() * sizeof(kernels::attention::Sequence));
  }
  // Of inputs, outputs and the sequence table: all but the workspace, which is the plan's. Saturates at INT64_MAX.
  std::int64_t tensor_bytes() const;
  // Of the outputs that go back to the caller: none if they are discarded. Saturates at INT64_MAX.
  std::int64_t answer_bytes() const;
  kernels::attention::OptionalTensors optional_tensors() const;
};

// Errors: INVALID_ARGUMENT, or UNIMPLEMENTED for what this server lacks, with the field's path in ridgeline.v1.AttendRequest.
absl::StatusOr<AttendProblem> ValidateAttend(AttendRequest request);

}  // namespace ridgeline::engine
