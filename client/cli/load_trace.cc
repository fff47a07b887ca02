#include "client/cli/load_trace.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/cli/arguments.h"
#include "client/cli/length_distribution.h"
#include "client/cli/units.h"

namespace ridgeline::cli {
namespace {

constexpr double kMaxArrivalSeconds = 86'400;

bool ParseTokens(absl::string_view text, std::int64_t minimum, std::int64_t& tokens) {
  return absl::SimpleAtoi(text, &tokens) && tokens >= minimum && tokens <= kMaxContextTokens;
}

std::optional<TracedSession> ParseSession(absl::string_view line) {
  const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::ByAnyChar(", \t"), absl::SkipEmpty());
  TracedSession session;
  // Written so that a NaN is refused.
  const bool right = parts.size() == 3 && absl::SimpleAtod(parts[0], &session.arrival_seconds) &&
                     session.arrival_seconds >= 0 && session.arrival_seconds <= kMaxArrivalSeconds &&
                     ParseTokens(parts[1], 1, session.prefill_tokens) && ParseTokens(parts[2], 0, session.decode_tokens);
  return right ? std::optional(session) : std::nullopt;
}

}  // namespace

absl::StatusOr<std::vector<TracedSession>> ReadSessionTrace(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::vector<TracedSession> sessions;
  std::string line;
  for (int line_number = 1; std::getline(file, line); ++line_number) {
    const absl::string_view content = absl::StripAsciiWhitespace(line);
    if (content.empty() || content[0] == '#') continue;
    const std::optional<TracedSession> session = ParseSession(content);
    if (!session.has_value()) {
      return UsageError(absl::StrCat("--trace: line ", line_number, " of ", path, " is '", content,
                                     "'; seconds up to a day, prefill tokens from 1 and decode tokens from 0, both to ",
                                     FormatCount(kMaxContextTokens), ", are allowed"));
    }
    if (!sessions.empty() && session->arrival_seconds < sessions.back().arrival_seconds) {
      return UsageError(absl::StrCat("--trace: line ", line_number, " of ", path, " arrives before the line above it"));
    }
    sessions.push_back(*session);
  }
  // A folder opens like a file and fails on the first read.
  if (file.bad()) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  if (sessions.empty()) return UsageError(absl::StrCat("--trace: ", path, " holds no session; one a line is needed"));
  return sessions;
}

}  // namespace ridgeline::cli
