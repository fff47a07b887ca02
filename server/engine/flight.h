// A launch and the lane that it holds, in the scheduler's hands.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/device/device.h"
#include "server/engine/batch_former.h"
#include "server/engine/task.h"
#include "server/engine/trace/traced_lane.h"
#include "server/engine/work.h"

namespace ridgeline::engine {

// How a task's part in a launch ends: with an answer, with another try, or with nobody who asks.
enum class Ending : std::uint8_t { kAnswer, kRetry, kUnwanted };

struct Flight {
  BatchFormer::Tasks tasks;  // changes only until it has departed, under the scheduler's mutex

  // Constant during the lease.
  int lane = -1;
  std::uint64_t lease = 0;         // how many leases there had been
  std::uint64_t num_releases = 0;  // when it began: see BatchFormer
  bool had_company = false;        // likewise
  absl::Time lease_begin;
  BatchFormer::Claim claim;

  const device::CancelToken cancel = std::make_shared<std::atomic<bool>>(false);  // set when no task's result is wanted

  // Written by whoever starts the flight, read at completion.
  std::unique_ptr<TracedLane> traced_lane;  // if it left while a capture ran; the launch is queued through it
  std::unique_ptr<Launch> launch;
  absl::Status queue_status;
};

}  // namespace ridgeline::engine
