// What the server tells of its fused operations, and how their tensors are called in requests.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/common/data_type.h"
#include "kernels/fused/fused.h"

namespace ridgeline::engine {

inline constexpr std::array<kernels::DataType, 3> kFusedDataTypes = {kernels::DataType::kFloat32, kernels::DataType::kFloat16,
                                                                     kernels::DataType::kBFloat16};

// As ridgeline.v1.FusedOpTensor and FusedOpOption, field by field.
struct FusedOpTensor {
  std::string name;
  std::string shape;
  bool optional = false;
  std::optional<kernels::DataType> data_type = {};  // unset: any of kFusedDataTypes
};

struct FusedOpOption {
  std::string name;
  std::string allowed;
  std::string default_value;
};

// As ridgeline.v1.FusedOp.
struct FusedOpDescription {
  kernels::fused::Op op;
  std::string name;
  std::string formula;
  std::vector<FusedOpTensor> inputs;
  std::vector<FusedOpTensor> outputs;
  std::vector<FusedOpOption> options;
  std::int64_t max_head_dim = 0;  // 0: it has no heads
  int unfused_kernel_count = 0;
};

// Of every operation, in the order of Op.
absl::Span<const FusedOpDescription> FusedOps();

// What a request calls FusedParams::input: "input", but "gate" of kSwiglu and "query" of kRopeAppend.
const char* InputName(kernels::fused::Op op);

}  // namespace ridgeline::engine
