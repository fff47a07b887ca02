// OpenTelemetry's way to say of which trace a request is part: the header `traceparent` of W3C Trace Context, level 1.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ridgeline::base {

struct TraceContext {
  std::string trace_id;   // 32 hexadecimal digits
  std::string parent_id;  // 16: the caller's span
};

// Of "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"; nothing for what the recommendation calls invalid, which is
// then to be left aside, not refused.
std::optional<TraceContext> ParseTraceparent(std::string_view header);

}  // namespace ridgeline::base
