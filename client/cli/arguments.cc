#include "client/cli/arguments.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ridgeline::cli {
namespace {

constexpr char kUsagePayload[] = "ridgeline/usage";

constexpr std::pair<const char*, v1::DataType> kDataTypes[] = {
    {"float32", v1::DATA_TYPE_FLOAT32}, {"float16", v1::DATA_TYPE_FLOAT16}, {"bfloat16", v1::DATA_TYPE_BFLOAT16}};
constexpr std::pair<const char*, v1::Algorithm> kAlgorithms[] = {
    {"auto", v1::ALGORITHM_UNSPECIFIED}, {"standard", v1::ALGORITHM_STANDARD}, {"flash", v1::ALGORITHM_FLASH}};

// Levenshtein's distance, row by row.
std::size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

absl::Status UsageError(absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kUsagePayload, absl::Cord());
  return status;
}

bool IsUsageError(const absl::Status& status) { return status.GetPayload(kUsagePayload).has_value(); }

absl::StatusOr<v1::DataType> ParseDataType(absl::string_view text) {
  for (const auto& [name, type] : kDataTypes) {
    if (text == name) return type;
  }
  return UsageError(absl::StrCat("--dtype is '", text, "'; float32, float16 and bfloat16 are allowed"));
}

std::string DataTypeName(v1::DataType type) {
  for (const auto& [name, named_type] : kDataTypes) {
    if (type == named_type) return name;
  }
  return v1::DataType_Name(type);
}

absl::StatusOr<v1::Algorithm> ParseAlgorithm(absl::string_view text) {
  for (const auto& [name, algorithm] : kAlgorithms) {
    if (text == name) return algorithm;
  }
  return UsageError(absl::StrCat("--algorithm is '", text, "'; auto, standard and flash are allowed"));
}

std::string AlgorithmName(v1::Algorithm algorithm) {
  for (const auto& [name, named_algorithm] : kAlgorithms) {
    if (algorithm == named_algorithm) return name;
  }
  return v1::Algorithm_Name(algorithm);
}

absl::StatusOr<std::vector<std::int64_t>> ParseIntegers(absl::string_view flag, absl::string_view text, std::int64_t minimum) {
  std::vector<std::int64_t> integers;
  if (text.empty()) return integers;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    std::int64_t integer;
    if (!absl::SimpleAtoi(item, &integer) || integer < minimum) {
      return UsageError(
          absl::StrCat("--", flag, " has '", item, "'; integers of at least ", minimum, ", separated by commas, are allowed"));
    }
    integers.push_back(integer);
  }
  return integers;
}

absl::StatusOr<std::vector<float>> ParseNumbers(absl::string_view flag, absl::string_view text) {
  std::vector<float> numbers;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    float number;
    // A number too large for float32 is read as an infinity, which nobody asked for.
    if (!absl::SimpleAtof(item, &number) || !(std::isfinite(number) || item == "-inf")) {
      return UsageError(
          absl::StrCat("--", flag, " has '", item, "'; float32 numbers, separated by commas, or a .npy file are allowed"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<ProblemShape> ParseProblemShape(absl::string_view flag, absl::string_view text) {
  const absl::StatusOr<std::vector<std::int64_t>> extents = ParseIntegers(flag, text, /*minimum=*/0);
  if (!extents.ok()) return extents.status();
  const std::vector<std::int64_t>& e = *extents;
  if (e.size() == 4) return ProblemShape{e[0], e[1], e[1], e[2], e[2], e[3], e[3]};
  if (e.size() == 6) return ProblemShape{e[0], e[1], e[2], e[3], e[4], e[5], e[5]};
  return UsageError(
      absl::StrCat("--", flag, " has ", e.size(), " extents; four (B,S,H,D) or six (B,Sq,Sk,Hq,Hkv,D) are allowed"));
}

std::optional<std::string> ClosestMatch(absl::string_view word, absl::Span<const std::string> candidates) {
  const std::size_t likely = std::max<std::size_t>(1, word.size() / 3);
  std::optional<std::string> closest;
  std::size_t fewest = likely + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t edits = EditDistance(word, candidate);
    if (edits < fewest) {
      fewest = edits;
      closest = candidate;
    }
  }
  return closest;
}

}  // namespace ridgeline::cli
