// Logs for operators: one line an event, `time=... level=info msg=listening service=grpc address=127.0.0.1:50051`, on stderr.
// A client's mistake is a counter, not a log line.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace ridgeline::base {

enum class LogLevel { kInfo, kWarning, kError };

// A key with its value. Values with spaces, quotes, '=' or control characters are quoted and escaped: a line stays one line
// whatever a client sends, and values are cut at 512 bytes.
struct LogField {
  LogField(std::string_view k, const absl::AlphaNum& v) : key(k), value(v.Piece()) {}

  std::string_view key;
  std::string value;
};

// Writes one line with one write(2); safe from any thread.
void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {});

// The line without its time and newline; for tests.
std::string FormatLogLine(LogLevel level, std::string_view message, std::initializer_list<LogField> fields);

}  // namespace ridgeline::base
