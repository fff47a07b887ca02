#include "client/cli/length_distribution.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/arguments.h"
#include "client/cli/units.h"

namespace ridgeline::cli {
namespace {

constexpr double kMaxSigma = 4;

bool ParseLength(absl::string_view text, std::int64_t& length) {
  return absl::SimpleAtoi(text, &length) && length >= 1 && length <= kMaxContextTokens;
}

std::string LengthsAllowed() { return absl::StrCat("lengths from 1 to ", FormatCount(kMaxContextTokens), " are allowed"); }

}  // namespace

absl::StatusOr<LengthDistribution> LengthDistribution::Parse(absl::string_view flag, absl::string_view text) {
  absl::StatusOr<Kind> kind = ParseKind(text);
  if (kind.ok()) return LengthDistribution(*std::move(kind));
  if (!IsUsageError(kind.status())) return kind.status();
  return UsageError(absl::StrCat("--", flag, " is '", text, "'; ", kind.status().message()));
}

// This and the parsers below say what is allowed; Parse adds of what.
absl::StatusOr<LengthDistribution::Kind> LengthDistribution::ParseKind(absl::string_view text) {
  if (absl::ConsumePrefix(&text, "fixed:")) {
    std::int64_t length;
    if (!ParseLength(text, length)) return UsageError(absl::StrCat("fixed takes one length; ", LengthsAllowed()));
    return Uniform{length, length};
  }
  if (absl::ConsumePrefix(&text, "uniform:")) return ParseUniform(text);
  if (absl::ConsumePrefix(&text, "lognormal:")) return ParseLogNormal(text);
  if (absl::ConsumePrefix(&text, "trace:")) return ReadTrace(std::string(text));
  return UsageError("fixed:N, uniform:A,B, lognormal:MEDIAN,SIGMA and trace:FILE are allowed");
}

absl::StatusOr<LengthDistribution::Kind> LengthDistribution::ParseUniform(absl::string_view ends) {
  const std::vector<absl::string_view> parts = absl::StrSplit(ends, ',');
  Uniform uniform;
  if (parts.size() != 2 || !ParseLength(parts[0], uniform.min) || !ParseLength(parts[1], uniform.max) ||
      uniform.min > uniform.max) {
    return UsageError(absl::StrCat("uniform takes the shortest and the longest; ", LengthsAllowed()));
  }
  return uniform;
}

absl::StatusOr<LengthDistribution::Kind> LengthDistribution::ParseLogNormal(absl::string_view parameters) {
  const std::vector<absl::string_view> parts = absl::StrSplit(parameters, ',');
  LogNormal log_normal;
  // Written so that a NaN is refused.
  const bool right = parts.size() == 2 && absl::SimpleAtod(parts[0], &log_normal.median) &&
                     absl::SimpleAtod(parts[1], &log_normal.sigma) && log_normal.median >= 1 &&
                     log_normal.median <= static_cast<double>(kMaxContextTokens) && log_normal.sigma >= 0 &&
                     log_normal.sigma <= kMaxSigma;
  if (!right) {
    return UsageError(absl::StrCat("lognormal takes the median and the logarithm's standard deviation, 0 to ", kMaxSigma, "; ",
                                   LengthsAllowed()));
  }
  return log_normal;
}

absl::StatusOr<LengthDistribution::Kind> LengthDistribution::ReadTrace(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  auto lengths = std::make_shared<std::vector<std::int64_t>>();
  std::string line;
  for (int line_number = 1; std::getline(file, line); ++line_number) {
    const absl::string_view content = absl::StripAsciiWhitespace(line);
    if (content.empty() || content[0] == '#') continue;
    std::int64_t length;
    if (!ParseLength(content, length)) {
      return UsageError(absl::StrCat("line ", line_number, " is '", content, "'; ", LengthsAllowed()));
    }
    lengths->push_back(length);
  }
  // A folder opens like a file and fails on the first read.
  if (file.bad()) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  if (lengths->empty()) return UsageError("the file holds no length; one a line is needed");
  return Trace{std::move(lengths)};
}

std::int64_t LengthDistribution::Draw(std::mt19937_64& random) {
  if (auto* const uniform = std::get_if<Uniform>(&kind_)) {
    return std::uniform_int_distribution<std::int64_t>(uniform->min, uniform->max)(random);
  }
  if (auto* const log_normal = std::get_if<LogNormal>(&kind_)) {
    const double length = log_normal->median * std::exp(log_normal->sigma * std::normal_distribution<double>()(random));
    return std::llround(std::clamp(length, 1.0, static_cast<double>(kMaxContextTokens)));
  }
  Trace& trace = std::get<Trace>(kind_);
  const std::int64_t length = (*trace.lengths)[trace.next_idx];
  trace.next_idx = (trace.next_idx + 1) % trace.lengths->size();
  return length;
}

}  // namespace ridgeline::cli
