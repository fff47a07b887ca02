// One fused operation, as it came and as it goes back. Members mirror the messages of ridgeline.v1.FuseRequest.op, all in one,
// so that errors name what the client sent: kernels::fused::OpInfo says which of them an operation has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/fused/fused.h"
#include "server/engine/report.h"
#include "server/engine/tensor.h"

namespace ridgeline::engine {

// Where kRopeAppend appends, and what.
struct FuseAppend {
  std::vector<std::string> sequences;  // kvCaches/{cache}/sequences/{sequence}
  std::int64_t layer = 0;
  std::optional<Tensor> new_key;
  std::optional<Tensor> new_value;
  std::vector<std::int64_t> lengths;
};

struct FuseRequest {
  std::optional<kernels::fused::Op> op;
  std::optional<kernels::fused::Mode> mode;  // unset: fused

  std::optional<Tensor> input;  // "gate" of kSwiglu, "query" of kRopeAppend
  std::optional<Tensor> other;  // OpInfo::other_name
  std::optional<Tensor> weight;
  std::optional<Tensor> bias;
  std::optional<Tensor> positions;

  std::optional<double> epsilon;
  kernels::fused::GeluForm gelu_form = kernels::fused::GeluForm::kErf;
  kernels::fused::DropoutOptions dropout;
  bool return_mask = false;
  kernels::fused::RopeLayout rope_layout = kernels::fused::RopeLayout::kHalfSplit;
  std::int64_t rotary_dim = 0;  // 0: head_dim
  std::optional<double> base;

  FuseAppend append;
  bool discard = false;
};

struct FuseResult {
  std::vector<OutputTensor> outputs;
  ExecutionReport report;
  int kernel_count = 0;
  std::vector<std::int64_t> lengths;  // kRopeAppend: of each sequence in that layer, after appending
};

}  // namespace ridgeline::engine
