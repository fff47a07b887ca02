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

absl::Status Refuse(absl::string_view text, absl::string_view allowed) {
  return UsageError(absl::StrCat("--context is '", text, "'; ", allowed));
}

}  // namespace

absl::StatusOr<LengthDistribution> LengthDistribution::Parse(absl::string_view text) {
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "fixed:")) {
    std::int64_t length;
    if (!ParseLength(rest, length)) return Refuse(text, absl::StrCat("fixed takes one length; ", LengthsAllowed()));
    return LengthDistribution(Uniform{length, length});
  }
  if (absl::ConsumePrefix(&rest, "uniform:")) return ParseUniform(text, rest);
  if (absl::ConsumePrefix(&rest, "lognormal:")) return ParseLogNormal(text, rest);
  if (absl::ConsumePrefix(&rest, "trace:")) return ReadTrace(std::string(rest));
  return Refuse(text, "fixed:N, uniform:A,B, lognormal:MEDIAN,SIGMA and trace:FILE are allowed");
}

absl::StatusOr<LengthDistribution> LengthDistribution::ParseUniform(absl::string_view text, absl::string_view ends) {
  const std::vector<absl::string_view> parts = absl::StrSplit(ends, ',');
  Uniform uniform;
  if (parts.size() != 2 || !ParseLength(parts[0], uniform.min) || !ParseLength(parts[1], uniform.max) ||
      uniform.min > uniform.max) {
    return Refuse(text, absl::StrCat("uniform takes the shortest and the longest; ", LengthsAllowed()));
  }
  return LengthDistribution(uniform);
}

absl::StatusOr<LengthDistribution> LengthDistribution::ParseLogNormal(absl::string_view text, absl::string_view parameters) {
  const std::vector<absl::string_view> parts = absl::StrSplit(parameters, ',');
  LogNormal log_normal;
  // Written so that a NaN is refused.
  const bool right = parts.size() == 2 && absl::SimpleAtod(parts[0], &log_normal.median) &&
                     absl::SimpleAtod(parts[1], &log_normal.sigma) && log_normal.median >= 1 &&
                     log_normal.median <= static_cast<double>(kMaxContextTokens) && log_normal.sigma >= 0 &&
                     log_normal.sigma <= kMaxSigma;
  if (!right) {
    return Refuse(text, absl::StrCat("lognormal takes the median and the logarithm's standard deviation, 0 to ", kMaxSigma,
                                     "; ", LengthsAllowed()));
  }
  return LengthDistribution(log_normal);
}

absl::StatusOr<LengthDistribution> LengthDistribution::ReadTrace(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  auto lengths = std::make_shared<std::vector<std::int64_t>>();
  std::string line;
  for (int line_number = 1; std::getline(file, line); ++line_number) {
    const absl::string_view content = absl::StripAsciiWhitespace(line);
    if (content.empty() || content[0] == '#') continue;
    std::int64_t length;
    if (!ParseLength(content, length)) {
      return UsageError(absl::StrCat("--context: line ", line_number, " of ", path, " is '", content, "'; ", LengthsAllowed()));
    }
    lengths->push_back(length);
  }
  // A folder opens like a file and fails on the first read.
  if (file.bad()) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  if (lengths->empty()) return UsageError(absl::StrCat("--context: ", path, " holds no length; one a line is needed"));
  return LengthDistribution(Trace{std::move(lengths)});
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
