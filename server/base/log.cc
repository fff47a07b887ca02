#include "server/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "server/base/clock.h"

namespace ridgeline::base {
namespace {

constexpr std::size_t kMaxValueBytes = 512;

std::atomic<LogLevel> least_level{LogLevel::kInfo};
std::atomic<LogFormat> log_format{LogFormat::kText};

const char* Name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

// Characters that can neither end a line nor be taken for syntax.
bool IsPlain(char c) { return c > ' ' && c < '\x7f' && c != '"' && c != '=' && c != '\\'; }

bool IsPlain(std::string_view value) {
  for (const char c : value) {
    if (!IsPlain(c)) return false;
  }
  return !value.empty();
}

absl::string_view Piece(std::string_view text) { return {text.data(), text.size()}; }

void AppendTextField(std::string_view key, std::string_view value, bool cut, std::string& line) {
  if (!line.empty()) line += ' ';
  line += key;
  line += '=';
  const char* const ellipsis = cut ? "..." : "";
  if (IsPlain(value)) {
    absl::StrAppend(&line, Piece(value), ellipsis);
  } else {
    // Escapes every byte that is not printable ASCII, so that no line separator of any encoding survives.
    absl::StrAppend(&line, "\"", absl::CHexEscape(Piece(value)), ellipsis, "\"");
  }
}

// Bytes that are not printable ASCII become \u00XX: what a client sends need not be UTF-8, and the line must be JSON.
void AppendJsonField(std::string_view key, std::string_view value, bool cut, std::string& line) {
  absl::StrAppend(&line, line.empty() ? "{" : ",", "\"", Piece(key), "\":\"");
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      line += {'\\', c};
    } else if (c >= ' ' && c < '\x7f') {
      line += c;
    } else {
      absl::StrAppendFormat(&line, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
  absl::StrAppend(&line, cut ? "..." : "", "\"");
}

void AppendField(LogFormat format, std::string_view key, std::string_view value, std::string& line) {
  const bool cut = value.size() > kMaxValueBytes;
  (format == LogFormat::kJson ? AppendJsonField : AppendTextField)(key, value.substr(0, kMaxValueBytes), cut, line);
}

std::string Format(LogFormat format, std::string_view time, LogLevel level, std::string_view message,
                   const std::vector<LogField>& fields) {
  std::string line;
  if (!time.empty()) AppendField(format, "time", time, line);
  AppendField(format, "level", Name(level), line);
  AppendField(format, "msg", message, line);
  for (const LogField& field : fields) AppendField(format, field.key, field.value, line);
  if (format == LogFormat::kJson) line += '}';
  return line;
}

}  // namespace

std::optional<LogLevel> ParseLogLevel(std::string_view name) {
  for (const LogLevel level : {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    if (name == Name(level)) return level;
  }
  return std::nullopt;
}

std::optional<LogFormat> ParseLogFormat(std::string_view name) {
  if (name == "text") return LogFormat::kText;
  if (name == "json") return LogFormat::kJson;
  return std::nullopt;
}

void ConfigureLog(LogLevel least, LogFormat format) {
  least_level.store(least, std::memory_order_relaxed);
  log_format.store(format, std::memory_order_relaxed);
}

bool IsLogged(LogLevel level) { return level >= least_level.load(std::memory_order_relaxed); }

std::string FormatLogLine(LogLevel level, std::string_view message, const std::vector<LogField>& fields, LogFormat format) {
  return Format(format, "", level, message, fields);
}

void Log(LogLevel level, std::string_view message, const std::vector<LogField>& fields) {
  if (!IsLogged(level)) return;
  const std::string time = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", SystemTime(), absl::UTCTimeZone());
  std::string line = Format(log_format.load(std::memory_order_relaxed), time, level, message, fields);
  line += '\n';
  while (::write(STDERR_FILENO, line.data(), line.size()) < 0 && errno == EINTR) {
  }
}

}  // namespace ridgeline::base
