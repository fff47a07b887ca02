// What a capture of the daemon's activity holds: calls, their ways through the scheduler, launches and what ran in them.
//
//   call     arrival ────────────────────────────────────────────────────► status
//   request        arrival ──(queue)──► lease ──(lane)──► completed
//   launch                              lease ──────────► completed
//   spans                                 upload │ kernel │ download          on the device's clock
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace ridgeline::engine {

// Whose work it is: the same on a call, its requests and the launches that they left in.
struct TraceOrigin {
  std::string request_id = {};
  std::string trace_id = {};   // of the caller's OpenTelemetry trace; empty: it sent none
  std::string parent_id = {};  // the caller's span; likewise
};

struct CallRecord {
  TraceOrigin origin = {};
  std::string method = {};  // "ridgeline.v1.AttentionService/Attend"
  std::string code = {};    // "OK"
  absl::Time begin = {};
  absl::Time end = {};
};

// One request of a call, of which a stream has many.
struct RequestRecord {
  TraceOrigin origin = {};
  absl::Time arrival = {};
  absl::Time lease_begin = {};
  absl::Time completed = {};
  std::int64_t launch = 0;  // its number
};

enum class SpanKind : std::uint8_t { kCopy, kKernel };

// Work of one launch on its lane, by device events.
struct DeviceSpan {
  SpanKind kind = {};
  std::string name = {};
  absl::Duration begin = {};  // before the end of the launch's last span
  absl::Duration duration = {};
  std::int64_t bytes = 0;  // of a copy
};

struct LaunchRecord {
  std::int64_t number = 0;
  int lane = 0;
  absl::Time begin = {};                      // the lease's
  absl::Time end = {};                        // completion as the host saw it; the last span is placed to end here
  std::vector<std::string> request_ids = {};  // of its members
  std::vector<DeviceSpan> spans = {};         // in order; a phase comes after the kernel that it is part of
  std::string error = {};                     // empty: it went well
};

struct TraceRecords {
  absl::Time begin = {};
  absl::Time end = {};
  std::vector<CallRecord> calls = {};
  std::vector<RequestRecord> requests = {};
  std::vector<LaunchRecord> launches = {};
  std::int64_t dropped = 0;  // records that came when there was no room left
};

}  // namespace ridgeline::engine
