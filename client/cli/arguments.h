// The words of a command line, read and checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ridgeline/v1/execution.pb.h"
#include "ridgeline/v1/tensor.pb.h"

namespace ridgeline::cli {

// The command line was wrong, not the work: the program ends with status 2 instead of 1.
absl::Status UsageError(absl::string_view message);
bool IsUsageError(const absl::Status& status);

// "float32", "float16" or "bfloat16"; a usage error for others. DataTypeName is its inverse.
absl::StatusOr<v1::DataType> ParseDataType(absl::string_view text);
std::string DataTypeName(v1::DataType type);

// "auto" (UNSPECIFIED), "standard" or "flash"; a usage error for others. AlgorithmName is its inverse.
absl::StatusOr<v1::Algorithm> ParseAlgorithm(absl::string_view text);
std::string AlgorithmName(v1::Algorithm algorithm);

// "128,256,512": integers of at least `minimum`; a usage error, naming the flag, for anything else. Empty text: none.
absl::StatusOr<std::vector<std::int64_t>> ParseIntegers(absl::string_view flag, absl::string_view text, std::int64_t minimum);

// "0.5,-2,-inf": finite numbers or -inf, rounded to float32; a usage error, naming the flag, for anything else.
absl::StatusOr<std::vector<float>> ParseNumbers(absl::string_view flag, absl::string_view text);

// The extents of one attention call.
struct ProblemShape {
  std::int64_t batch = 1;
  std::int64_t query_tokens = 0;
  std::int64_t key_tokens = 0;
  std::int64_t query_heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 0;
  std::int64_t value_head_dim = 0;
};

// "B,S,H,D", or "B,Sq,Sk,Hq,Hkv,D"; a usage error, naming the flag, for anything else.
absl::StatusOr<ProblemShape> ParseProblemShape(absl::string_view flag, absl::string_view text);

// What the user probably meant: the candidate that the fewest single-character edits make of it, if those are few.
std::optional<std::string> ClosestMatch(absl::string_view word, absl::Span<const std::string> candidates);

}  // namespace ridgeline::cli
