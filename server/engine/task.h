// A work in the scheduler's hands, from its admission to its end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "server/engine/fair_queue.h"
#include "server/engine/work.h"

namespace ridgeline::engine {

struct Flight;

// All that is not constant is guarded by the scheduler's mutex.
struct Task {
  Task(std::unique_ptr<Work> work_to_do, WorkTraits work_traits, absl::Time arrival_time)
      : work(std::move(work_to_do)), traits(std::move(work_traits)), arrival(arrival_time) {}

  const std::unique_ptr<Work> work;
  const WorkTraits traits;
  const absl::Time arrival;

  // ---- In the line.
  FairPlace place;
  int num_ahead = 0;                        // works that must end first: see AccessOrder
  std::optional<std::uint64_t> refused_at;  // BatchFormer::num_releases before it was told "not now"
  bool leaves_alone = false;                // memory ran out for a launch that it shared
  bool runs_alone = false;                  // memory ran out beside other launches: not in the line, but before it

  // ---- On a lane.
  Flight* flight = nullptr;  // null: on none

  bool finish_claimed = false;
};

}  // namespace ridgeline::engine
