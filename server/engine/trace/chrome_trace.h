// A capture as Chrome trace events, which Perfetto and chrome://tracing show.
//
//   process "calls"     a track for each call, of nested spans: the call, and in it receive, queue, lane, answer; of a stream,
//                       a track for each of its requests
//   process <device>    a track for each lane: launches, in them copies and kernels, in standard attention's its phases
//
// Every span has the ids of the requests that it belongs to among its arguments, and those of the callers' traces.
#pragma once

#include <string>

#include "server/engine/trace/trace_records.h"

namespace ridgeline::engine {

// One JSON object. Times are microseconds since the capture began.
std::string ChromeTraceJson(const TraceRecords& records, const std::string& device, int num_lanes);

}  // namespace ridgeline::engine
