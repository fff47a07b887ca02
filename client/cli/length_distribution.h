// Lengths that a load draws, in tokens: where they come from, and drawing them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ridgeline::cli {

// Longest length that a load draws: 2^24 tokens. It keeps a distribution's tail, or a mistyped trace, from asking for more
// memory than any device has.
inline constexpr std::int64_t kMaxContextTokens = std::int64_t{1} << 24;

class LengthDistribution {
 public:
  // "fixed:N", "uniform:A,B" (both ends included), "lognormal:MEDIAN,SIGMA" (SIGMA of the logarithm; rounded, and cut to 1 to
  // kMaxContextTokens) or "trace:FILE" (one length a line, taken in order and from the start again; empty lines and lines that
  // begin with # are skipped). A usage error, naming the flag, for anything else; NOT_FOUND for a file that can't be read.
  static absl::StatusOr<LengthDistribution> Parse(absl::string_view flag, absl::string_view text);

  static LengthDistribution Fixed(std::int64_t length) { return LengthDistribution(Uniform{length, length}); }

  // One length, 1 to kMaxContextTokens. Traces remember where they are, so a copy starts where the original is.
  std::int64_t Draw(std::mt19937_64& random);

 private:
  struct Uniform {
    std::int64_t min = 1;
    std::int64_t max = 1;
  };
  struct LogNormal {
    double median = 1;
    double sigma = 0;
  };
  struct Trace {
    std::shared_ptr<const std::vector<std::int64_t>> lengths;
    std::size_t next_idx = 0;
  };
  using Kind = std::variant<Uniform, LogNormal, Trace>;  // a fixed length is a uniform one

  explicit LengthDistribution(Kind kind) : kind_(std::move(kind)) {}

  static absl::StatusOr<Kind> ParseKind(absl::string_view text);
  static absl::StatusOr<Kind> ParseUniform(absl::string_view ends);
  static absl::StatusOr<Kind> ParseLogNormal(absl::string_view parameters);
  static absl::StatusOr<Kind> ReadTrace(const std::string& path);

  Kind kind_;
};

}  // namespace ridgeline::cli
