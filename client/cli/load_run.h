// Sends a load and keeps what came of it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cli/load_schedule.h"
#include "client/cli/samples.h"
#include "client/cpp/client.h"
#include "ridgeline/v1/attention.pb.h"

namespace ridgeline::cli {

// Codes that a status can have, OK included: an array's length.
inline constexpr int kNumStatusCodes = 17;
// An open loop's request that leaves later than this after its intended time is late.
inline constexpr double kLateSeconds = 1e-3;

// The requests of one kind whose intended time lies after the warm-up.
struct LoadCounts {
  std::int64_t num_sent = 0;
  std::int64_t num_answered = 0;
  std::int64_t num_late = 0;
  std::int64_t query_tokens = 0;  // of what was answered, summed over batch rows
  std::int64_t key_tokens = 0;
  std::array<std::int64_t, kNumStatusCodes> failures_by_code = {};

  // Times in seconds. All but the send delay are of answered requests only.
  Samples latency;     // from the intended send time to the answer
  Samples send_delay;  // from the intended send time to the actual one
  Samples queue;       // these three from the server's reports
  Samples inputs;      // moving or making them: its upload time
  Samples kernel;
  std::int64_t batch_requests = 0;  // of the reports, summed: requests that shared each answer's launch
  double device_seconds = 0;        // kernel times, each launch's counted once

  void Add(const LoadCounts& other);
  void AddReport(const v1::ExecutionReport& report);
  std::int64_t num_failed() const { return num_sent - num_answered; }
};

// Of a load over KV caches; the counts of those that began after the warm-up.
struct SessionCounts {
  std::int64_t num_begun = 0;
  std::int64_t num_completed = 0;  // all that they should attend was attended
  std::int64_t num_cancelled = 0;  // given up on purpose
  Samples first_token;             // seconds from the intended begin until the whole prompt was attended

  void Add(const SessionCounts& other);
};

struct LoadOutcome {
  LoadCounts prefill;
  LoadCounts decode;
  SessionCounts sessions;
  std::int64_t num_warm_up = 0;
  std::int64_t num_unsent = 0;  // open loop only
  double elapsed_seconds = 0;   // from the end of the warm-up to the last answer, at least the duration
  absl::Status first_failure;   // OK: there was none
  absl::Status ended_by;        // a failure that every further request would have shared; OK: none

  // Of one caller into that of all. Its failures are the first if there were none.
  void Add(const LoadOutcome& other);
};

struct LoadState {
  double now_seconds = 0;  // on the schedule's clock: below 0 is warm-up
  std::int64_t num_answered = 0;
  std::int64_t num_failed = 0;
};

// Runs `num_workers` threads (at least 1), each with one request under way at a time, on `channels` in turn. `make_request` is
// called by several threads at once. `show` is called by this thread a few times a second. A failure that says the request
// itself is wrong (INVALID_ARGUMENT, UNIMPLEMENTED) ends the run; after any other failure a closed-loop client pauses for as
// long as the server asked, at least 10 ms.
LoadOutcome RunLoadThreads(absl::Span<const client::Client> channels, int num_workers, const LoadTiming& timing,
                           LoadSchedule& schedule, const std::function<v1::AttendRequest(const ProblemShape&)>& make_request,
                           absl::FunctionRef<void(const LoadState&)> show);

}  // namespace ridgeline::cli
