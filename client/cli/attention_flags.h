// The flags that several of `attend`, `compare` and `load` share, and the requests made from them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/flags/declare.h"
#include "absl/status/statusor.h"
#include "client/cli/arguments.h"
#include "ridgeline/v1/attention.pb.h"

ABSL_DECLARE_FLAG(std::uint64_t, seed);

namespace ridgeline::cli {

// --dtype; UNSPECIFIED when it is not given.
absl::StatusOr<v1::DataType> DataTypeFromFlags();

// --algorithm; UNSPECIFIED for auto.
absl::StatusOr<v1::Algorithm> AlgorithmFromFlags();

// --causal, --window_left, --window_right, --scale and --soft_cap.
v1::AttentionOptions OptionsFromFlags();

// What those options hide, in words: "causal", "window of 128 to the left", "none".
std::string MaskText(const v1::AttentionOptions& options);

// --repeat, or `default_runs` when it is not given; at least 1.
absl::StatusOr<int> RunsFromFlags(int default_runs);

// Overrides key_tokens, kv_heads and value_head_dim where --key_tokens, --kv_heads and --value_head_dim are given.
void OverrideFromFlags(ProblemShape& shape);

// Query, key and value made by the device from --seed and the two seeds after it: equal seeds would make them equal.
v1::AttendRequest RandomRequest(const ProblemShape& shape, v1::DataType type);

}  // namespace ridgeline::cli
