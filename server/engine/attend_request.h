// One attention call, as it came and as it goes back. Fields mirror ridgeline.v1, so that errors name what the client sent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/attention/attention.h"
#include "server/engine/report.h"
#include "server/engine/tensor.h"

namespace ridgeline::engine {

struct DenseKeyValue {
  std::optional<Tensor> key;
  std::optional<Tensor> value;
  std::vector<std::int64_t> lengths;
};

// Of sequences in a KV cache, one for each row of the batch.
struct PagedKeyValue {
  std::vector<std::string> sequences;  // kvCaches/{cache}/sequences/{sequence}
  std::int64_t layer = 0;
  std::optional<Tensor> new_key;
  std::optional<Tensor> new_value;
};

struct AttentionOptions {
  std::optional<kernels::attention::Algorithm> algorithm;
  std::optional<double> scale;
  bool causal = false;
  std::optional<std::int64_t> window_left;
  std::optional<std::int64_t> window_right;
  double logit_soft_cap = 0;
  std::optional<Tensor> alibi_slopes;
  std::optional<Tensor> sink_logits;
  std::optional<Tensor> bias;
};

struct OutputOptions {
  bool log_sum_exp = false;
  bool discard = false;
  std::optional<SharedMemorySlice> shared_memory;
  std::optional<kernels::DataType> data_type;
};

struct AttendRequest {
  std::optional<Tensor> query;
  std::vector<std::int64_t> query_lengths;
  std::optional<DenseKeyValue> dense;
  std::optional<PagedKeyValue> paged;  // exactly one of dense and paged
  AttentionOptions options;
  OutputOptions output;
};

struct AttendResult {
  std::optional<OutputTensor> output;
  std::optional<OutputTensor> log_sum_exp;
  ExecutionReport report;
};

}  // namespace ridgeline::engine
