#include "server/base/log.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace ridgeline::base {
namespace {

constexpr std::size_t kMaxValueBytes = 512;

const char* Name(LogLevel level) {
  switch (level) {
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

void AppendField(std::string_view key, std::string_view value, std::string& line) {
  if (!line.empty()) line += ' ';
  line += key;
  line += '=';
  const bool cut = value.size() > kMaxValueBytes;
  value = value.substr(0, kMaxValueBytes);
  const char* const ellipsis = cut ? "..." : "";
  if (IsPlain(value)) {
    absl::StrAppend(&line, absl::string_view(value.data(), value.size()), ellipsis);
  } else {
    // Escapes every byte that is not printable ASCII, so that no line separator of any encoding survives.
    absl::StrAppend(&line, "\"", absl::CHexEscape(absl::string_view(value.data(), value.size())), ellipsis, "\"");
  }
}

}  // namespace

std::string FormatLogLine(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  std::string line;
  AppendField("level", Name(level), line);
  AppendField("msg", message, line);
  for (const LogField& field : fields) AppendField(field.key, field.value, line);
  return line;
}

void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  const std::string time = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
  const std::string line = absl::StrCat("time=", time, " ", FormatLogLine(level, message, fields), "\n");
  while (::write(STDERR_FILENO, line.data(), line.size()) < 0 && errno == EINTR) {
  }
}

}  // namespace ridgeline::base
