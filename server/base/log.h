// Logs for operators: one line an event, `time=... level=info msg=listening service=grpc address=127.0.0.1:50051`, or the same
// as a JSON object, on stderr. A client's mistake is a counter, not a log line.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ridgeline::base {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

enum class LogFormat { kText, kJson };

// "debug", "info" ...; nothing for another word.
std::optional<LogLevel> ParseLogLevel(std::string_view name);
std::optional<LogFormat> ParseLogFormat(std::string_view name);  // "text" or "json"

// What the process logs from now on, and how. Before it is called: kInfo and above, as text.
void ConfigureLog(LogLevel least, LogFormat format);

// Cheap: to be asked before the fields of a line that is written for every request are made.
bool IsLogged(LogLevel level);

// A key with its value. Values with spaces, quotes, '=' or control characters are quoted and escaped: a line stays one line
// whatever a client sends, and values are cut at 512 bytes.
struct LogField {
  LogField(std::string_view k, const absl::AlphaNum& v) : key(k), value(v.Piece()) {}

  std::string_view key;
  std::string value;
};

// Writes one line with one write(2), if the level is logged; safe from any thread.
void Log(LogLevel level, std::string_view message, const std::vector<LogField>& fields = {});

// The line without its time and newline; for tests.
std::string FormatLogLine(LogLevel level, std::string_view message, const std::vector<LogField>& fields,
                          LogFormat format = LogFormat::kText);

}  // namespace ridgeline::base
