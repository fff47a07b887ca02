// Attend calls that come when their time has come, whatever became of those before.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "ridgeline/v1/attention.pb.h"
#include "tests/resilience/known_answer.h"
#include "tests/resilience/tally.h"

namespace ridgeline::resilience {

// A request whose tensors the daemon makes, with its answer.
struct KnownRequest {
  v1::AttendRequest request;
  KnownAnswer answer;
};

// A few, each some milliseconds of one core's work.
const std::vector<KnownRequest>& KnownRequests();

// The times at which calls are to begin, for many threads.
class Pace {
 public:
  explicit Pace(double calls_per_second);
  // Of the call that nobody has asked for yet.
  absl::Time Next();

 private:
  const absl::Time begin_;
  const absl::Duration interval_;
  std::atomic<std::int64_t> next_{0};
};

// One thread's calls, until `ends` and all are over. One in ten has a deadline that it may miss, one in ten is cancelled at
// some moment.
void CallAtPace(const std::string& address, std::uint64_t seed, Pace& pace, Tally& tally, const std::atomic<bool>& ends);

// Requests of this kind that the daemon answers in a second, if so many callers each wait for an answer before the next
// request.
double MeasureCapacity(const std::string& address, int num_callers);

}  // namespace ridgeline::resilience
