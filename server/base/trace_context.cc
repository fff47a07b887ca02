#include "server/base/trace_context.h"

#include <algorithm>
#include <cstddef>

namespace ridgeline::base {
namespace {

constexpr std::size_t kVersionDigits = 2;
constexpr std::size_t kTraceIdDigits = 32;
constexpr std::size_t kParentIdDigits = 16;
constexpr std::size_t kFlagDigits = 2;
constexpr std::size_t kVersion0Size = kVersionDigits + kTraceIdDigits + kParentIdDigits + kFlagDigits + 3;

bool IsLowerHex(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsAllZero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

}  // namespace

std::optional<TraceContext> ParseTraceparent(std::string_view header) {
  if (header.size() < kVersion0Size) return std::nullopt;
  const std::string_view version = header.substr(0, kVersionDigits);
  const std::string_view trace_id = header.substr(kVersionDigits + 1, kTraceIdDigits);
  const std::string_view parent_id = header.substr(kVersionDigits + kTraceIdDigits + 2, kParentIdDigits);
  const std::string_view flags = header.substr(kVersion0Size - kFlagDigits, kFlagDigits);
  for (const std::size_t dash : {kVersionDigits, kVersionDigits + kTraceIdDigits + 1, kVersion0Size - kFlagDigits - 1}) {
    if (header[dash] != '-') return std::nullopt;
  }
  if (!IsLowerHex(version) || !IsLowerHex(trace_id) || !IsLowerHex(parent_id) || !IsLowerHex(flags)) return std::nullopt;
  // A later version may have more fields behind these, set off by a dash.
  const bool has_more = header.size() > kVersion0Size;
  if (version == "ff" || (has_more && (version == "00" || header[kVersion0Size] != '-'))) return std::nullopt;
  if (IsAllZero(trace_id) || IsAllZero(parent_id)) return std::nullopt;
  return TraceContext{std::string(trace_id), std::string(parent_id)};
}

}  // namespace ridgeline::base
