#include "client/cli/attention_flags.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/tensor_io.h"

ABSL_FLAG(std::string, dtype, "",
          "Element type: float32, float16 or bfloat16. Empty: as the files have it, or float32 for random tensors. Files of "
          "another type are converted.");
ABSL_FLAG(std::string, algorithm, "auto", "auto (the server chooses), standard or flash.");
ABSL_FLAG(bool, causal, false, "Hide keys after the query's own position (aligned to the bottom right).");
ABSL_FLAG(std::optional<std::int64_t>, window_left, std::nullopt,
          "Keys visible to the left of the query's own position. Empty: all.");
ABSL_FLAG(std::optional<std::int64_t>, window_right, std::nullopt,
          "Keys visible to the right of the query's own position. Empty: all.");
ABSL_FLAG(std::optional<double>, scale, std::nullopt, "Factor on query-key products. Empty: 1/sqrt(head_dim).");
ABSL_FLAG(double, soft_cap, 0, "Logits become cap * tanh(logit / cap). 0: no cap.");
ABSL_FLAG(std::uint64_t, seed, 1,
          "Seed of random queries; keys and values use the two after it. A load draws its mix and its arrivals from it too.");
ABSL_FLAG(std::optional<int>, repeat, std::nullopt,
          "Timed calls; the one with the median kernel time is reported. Empty: 1, and 5 for compare and fuse.");
ABSL_FLAG(std::int64_t, key_tokens, 0, "Key tokens of random tensors. 0: as --random has it.");
ABSL_FLAG(std::int64_t, kv_heads, 0,
          "Key-value heads of random tensors or of a KV cache. 0: as many as query heads, or as the shape has it.");
ABSL_FLAG(std::int64_t, value_head_dim, 0, "Head dimension of random values, or of a KV cache's. 0: the keys'.");

namespace ridgeline::cli {

absl::StatusOr<v1::DataType> DataTypeFromFlags() {
  const std::string type = absl::GetFlag(FLAGS_dtype);
  if (type.empty()) return v1::DATA_TYPE_UNSPECIFIED;
  return ParseDataType(type);
}

absl::StatusOr<v1::Algorithm> AlgorithmFromFlags() { return ParseAlgorithm(absl::GetFlag(FLAGS_algorithm)); }

v1::AttentionOptions OptionsFromFlags() {
  v1::AttentionOptions options;
  options.set_causal(absl::GetFlag(FLAGS_causal));
  options.set_logit_soft_cap(absl::GetFlag(FLAGS_soft_cap));
  if (const auto scale = absl::GetFlag(FLAGS_scale)) options.set_scale(*scale);
  if (const auto left = absl::GetFlag(FLAGS_window_left)) options.set_window_left(*left);
  if (const auto right = absl::GetFlag(FLAGS_window_right)) options.set_window_right(*right);
  return options;
}

std::string MaskText(const v1::AttentionOptions& options) {
  std::vector<std::string> parts;
  if (options.causal()) parts.push_back("causal");
  if (options.has_window_left()) parts.push_back(absl::StrCat("window of ", options.window_left(), " to the left"));
  if (options.has_window_right()) parts.push_back(absl::StrCat("window of ", options.window_right(), " to the right"));
  return parts.empty() ? "none" : absl::StrJoin(parts, ", ");
}

absl::StatusOr<int> RunsFromFlags(int default_runs) {
  const int num_runs = absl::GetFlag(FLAGS_repeat).value_or(default_runs);
  if (num_runs < 1) return UsageError(absl::StrCat("--repeat is ", num_runs, "; at least 1 is allowed"));
  return num_runs;
}

void OverrideFromFlags(ProblemShape& shape) {
  if (const std::int64_t key_tokens = absl::GetFlag(FLAGS_key_tokens); key_tokens != 0) shape.key_tokens = key_tokens;
  if (const std::int64_t kv_heads = absl::GetFlag(FLAGS_kv_heads); kv_heads != 0) shape.kv_heads = kv_heads;
  if (const std::int64_t head_dim = absl::GetFlag(FLAGS_value_head_dim); head_dim != 0) shape.value_head_dim = head_dim;
}

v1::AttendRequest RandomRequest(const ProblemShape& shape, v1::DataType type) {
  const std::uint64_t seed = absl::GetFlag(FLAGS_seed);
  v1::AttendRequest request;
  *request.mutable_query() =
      client::RandomTensor(type, {shape.batch, shape.query_tokens, shape.query_heads, shape.head_dim}, seed);
  *request.mutable_dense()->mutable_key() =
      client::RandomTensor(type, {shape.batch, shape.key_tokens, shape.kv_heads, shape.head_dim}, seed + 1);
  *request.mutable_dense()->mutable_value() =
      client::RandomTensor(type, {shape.batch, shape.key_tokens, shape.kv_heads, shape.value_head_dim}, seed + 2);
  *request.mutable_options() = OptionsFromFlags();
  return request;
}

}  // namespace ridgeline::cli
