// Admitted requests as the scheduler sees them, and the launches in which they leave; an operation derives from both. Neither
// knows of queues.
//
//   Begin ─go─► MakeLaunch ─► Launch: Queue ─► (the lane completes) ─► Release ─► Drop ─► Finish
//   ▲ │  └─not now─► Begin, later                                       │
//   │ └─error─► Drop ─► Finish                                          │
//   └───────────────────────── once more, if memory ran out ────────────┘
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/device/device.h"
#include "server/engine/trace/trace_records.h"

namespace ridgeline::engine {

// A few tokens for each sequence, which somebody waits for before the next ones can be, or many.
enum class WorkSize : std::uint8_t { kDecode, kPrefill };

// Tokens of each sequence up to which a work is a step of a decode loop: one token, or those of a speculation.
inline constexpr std::int64_t kMaxDecodeTokens = 16;

// Something that other works use too. Those that change it come one after the other, in the order of their arrival.
struct Access {
  std::uint64_t what;  // equal for what is the same; rarely, for what is not
  bool writes;
};

// What decides when a work leaves and with whom.
struct WorkTraits {
  std::string client = {};                       // takes turns with other clients
  std::int64_t device_bytes = 0;                 // of device memory, at its peak
  absl::Time deadline = absl::InfiniteFuture();  // from this time on it is not worth starting
  WorkSize size = WorkSize::kPrefill;
  std::int64_t tokens = 1;     // what it takes of a launch's budget
  std::string batch_key = {};  // works of one size and equal key may share a launch; empty: it leaves alone
  std::vector<Access> accesses = {};
  absl::Duration roof_time = {};  // of its kernels at the device's measured peaks; zero: they are short
  bool exclusive = false;         // it begins when all lanes are free, and nothing else does until it has ended
  TraceOrigin origin = {};        // whose work it is
  const char* operation = "";     // what it is, in snapshots of memory; static
};

// Works that leave together, or one alone. Outlived by its members.
class Launch {
 public:
  virtual ~Launch() = default;

  // Allocates and queues everything on the lane; what it allocates is held until Release. Ok: the lane alone keeps the callers'
  // inputs now, until it has read them. After an error the launch may be partly queued, and its members keep their inputs.
  // `cancel` is set when nobody wants any result.
  virtual absl::Status Queue(device::Lane& lane, const device::CancelToken& cancel) = 0;

  // Calls `done` once, when all that Queue began has ended, with the first error among it. Called whatever Queue returned, and
  // without it if the launch is not to begin. `done` may destroy the launch.
  virtual void OnEnd(device::Lane& lane, absl::AnyInvocable<void(absl::Status)> done) { lane.OnComplete(std::move(done)); }

  // The lane has let go of the launch. outcomes[i] is member i's: ok, and it keeps its results; an error, and it has none, and
  // what it was to change is as it was.
  virtual void Release(absl::Span<const absl::Status> outcomes) = 0;
};

enum class Turn : std::uint8_t { kGo, kNotNow };

class Work {
 public:
  virtual ~Work() = default;

  // Its turn has come: takes what it needs beside the lane, until Release. Not now: other work has that; to be asked again when
  // some has ended. An error is the work's own end. `queue_time` is from the request's arrival until now.
  virtual absl::StatusOr<Turn> Begin(absl::Duration queue_time) = 0;

  // `members` have all begun; this is the first, the others have its batch key.
  virtual std::unique_ptr<Launch> MakeLaunch(absl::Span<Work* const> members) = 0;

  // It will not begin again and is in no launch: lets go of everything but its results and its caller.
  virtual void Drop() = 0;

  // Answers the caller: with the results that Release kept, or the error. Called exactly once; an error may come at any time,
  // from any thread, even during the calls above.
  virtual void Finish(const absl::Status& status) = 0;
};

}  // namespace ridgeline::engine
