// What the sessions of a load over KV caches do, and when they come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/cli/length_distribution.h"
#include "client/cli/load_schedule.h"
#include "client/cli/load_trace.h"

namespace ridgeline::cli {

// One session: a sequence in a cache, and what is attended over it.
struct SessionPlan {
  double intended_seconds = 0;           // when it should begin
  std::int64_t fill_tokens = 0;          // appended before it begins, without attention: nothing of it is measured
  std::int64_t prefill_tokens = 0;       // attended in chunks
  std::int64_t decode_tokens = 0;        // then attended one at a time
  std::int64_t first_decode_tokens = 0;  // of the first round, where a session repeats itself; later ones have all

  std::int64_t max_tokens() const { return fill_tokens + prefill_tokens + decode_tokens; }
};

struct SessionMix {
  LengthDistribution context = LengthDistribution::Fixed(1);
  LengthDistribution decode_tokens = LengthDistribution::Fixed(1);
  double decode_share = 1;                // closed loop: of the clients; the others prefill their context over and over
  std::vector<TracedSession> trace = {};  // not empty: these sessions instead, in an open loop
};

// Threads may share one. The same seed gives the same sessions in the same order.
class SessionSchedule {
 public:
  SessionSchedule(const LoadTiming& timing, SessionMix mix, int num_clients, std::uint64_t seed);

  bool open_loop() const { return timing_.rate_per_second.has_value() || !mix_.trace.empty(); }

  // Tokens that a session needs at most: of a trace exactly, else the largest of several thousand that are drawn for this.
  std::int64_t LongestSession() const;

  // The next session for a client that is free; nothing when the load is over. A closed loop's begins now, its context filled:
  // the lower client numbers decode, the others prefill, and each client's first round ends somewhere within it, so
  // that they don't all start over together. An open loop's begins when it should, whoever is free: it prefills its context,
  // then decodes. What the warm-up leaves unsent is dropped.
  std::optional<SessionPlan> Next(int client_idx, double now_seconds);

  // Open loop: sessions intended after the warm-up and before the end that were never handed out. Call it once, after the last
  // Next().
  std::int64_t CountUnsent();

 private:
  SessionPlan DrawClosed(int client_idx, double now_seconds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves on to the next session of the open loop; nothing: there is none.
  std::optional<SessionPlan> DrawOpen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const LoadTiming timing_;
  const SessionMix mix_;  // its distributions are copied before they are drawn from
  const int num_decoders_;
  mutable absl::Mutex mutex_;
  LengthDistribution context_ ABSL_GUARDED_BY(mutex_);
  LengthDistribution decode_tokens_ ABSL_GUARDED_BY(mutex_);
  std::mt19937_64 length_random_ ABSL_GUARDED_BY(mutex_);
  std::mt19937_64 arrival_random_ ABSL_GUARDED_BY(mutex_);
  PoissonArrivals arrivals_ ABSL_GUARDED_BY(mutex_);
  std::size_t next_traced_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<bool> has_begun_ ABSL_GUARDED_BY(mutex_);      // [client]
  std::optional<SessionPlan> next_ ABSL_GUARDED_BY(mutex_);  // open loop
};

}  // namespace ridgeline::cli
