// One attention call, checked: what every step behind the gate may trust.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/cost.h"
#include "server/engine/check_tensor.h"

namespace ridgeline::engine {

// Layouts are those of kernels::attention::AttentionParams.
struct AttendProblem {
  kernels::attention::AttentionShape shape;
  std::vector<kernels::attention::Sequence> sequences;
  std::optional<kernels::attention::Algorithm> algorithm;  // unset: the device's choice
  float scale = 0;
  float logit_soft_cap = 0;

  TensorSource query;
  TensorSource key;                          // paged: the new rows; none if nothing is appended
  TensorSource value;                        // likewise
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

}  // namespace ridgeline::engine
