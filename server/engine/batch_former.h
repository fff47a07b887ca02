// Which waiting works leave next, and which of them together.
//
//   decode line   a1 b1 c1 a2 ...  ─┐   front that may leave ─► all behind it with its key, up to the budget ─► one launch
//   prefill line  d1 e1 d2 ...     ─┘
//
// Decode goes before prefill, but after `max_decode_launches_in_a_row` launches past a waiting prefill one prefill goes; and
// while decode waits, prefill leaves one lane to it.
//
// Decode launches of one key hold at most `max_decode_launches_per_key` lanes, and a further one leaves beside running ones
// only when it would be at least half as large as the largest of them, or full. Why: each launch pays for its transfers and its
// start whatever its size, and a free lane that took every step as it came would split a hundred decode loops into a hundred
// launches. While the first runs, the steps of all others collect; the second is uploaded beside it, so that the device does
// not wait for the host between the two. Were it to be as large, most would come too late for that: while half of the loops are
// on their way between an answer and the next step, fewer collect than run. With one client, or when nothing of the key runs, a
// step leaves at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/engine/fair_queue.h"
#include "server/engine/task.h"

namespace ridgeline::engine {

struct BatchLimits {
  int max_requests = 256;                // of one launch; >= 1
  std::int64_t max_tokens = 8192;        // of one launch of several requests: one that has more leaves alone
  int max_decode_launches_per_key = 2;   // at the same time; >= 1
  int max_decode_launches_in_a_row = 8;  // while prefill waits; >= 1
};

// Not thread-safe.
class BatchFormer {
 public:
  using Tasks = std::vector<std::shared_ptr<Task>>;

  // What a launch counts for while it runs.
  struct Claim {
    WorkSize size = WorkSize::kPrefill;
    std::string key = {};
    std::int64_t tokens = 0;
  };

  struct Departure {
    Tasks tasks = {};    // out of the line; empty: all that wait have to wait on
    Tasks expired = {};  // out of the line: their deadlines have come
  };

  BatchFormer(const BatchLimits& limits, int num_lanes) : limits_(limits), num_lanes_(num_lanes) {}

  void Push(const std::shared_ptr<Task>& task, std::uint64_t ticket);
  // Whether a launch may leave, where none could before the last Push, of `pushed`. False is certain, and takes no look at the
  // others in the line.
  bool MayLetOneLeave(const Task& pushed) const;
  // To its old place.
  void PushBack(const std::shared_ptr<Task>& task);
  // False: it does not wait.
  bool Remove(const Task& task);
  Tasks TakeExpired(absl::Time now);

  // The next launch; whoever starts it calls Leave first.
  Departure Form(absl::Time now);

  // A launch of these tasks leaves; when it has ended, or if it came to nothing, its claim returns.
  Claim Leave(const Tasks& tasks);
  void Return(const Claim& claim);

  // Work has let go of what it used: those that were told "not now" will be asked again. They are passed over while
  // Task::refused_at says that nobody has since.
  void NoteRelease() { ++num_releases_; }
  std::uint64_t num_releases() const { return num_releases_; }

  bool empty() const { return size() == 0; }
  int size() const { return line(WorkSize::kDecode).size() + line(WorkSize::kPrefill).size(); }
  Tasks tasks() const;

 private:
  using Line = FairQueue<std::shared_ptr<Task>>;
  using Launches = std::vector<std::int64_t>;  // their tokens; at least one

  // Tasks of one line that could share a launch.
  struct Batch {
    std::vector<Line::Position> members;
    std::int64_t tokens = 0;
    bool is_full = false;  // no other would fit, or one did not
  };

  Line& line(WorkSize size) { return lines_[static_cast<std::size_t>(size)]; }
  const Line& line(WorkSize size) const { return lines_[static_cast<std::size_t>(size)]; }
  std::int64_t& waiting_tokens(WorkSize size) { return waiting_tokens_[static_cast<std::size_t>(size)]; }
  std::int64_t waiting_tokens(WorkSize size) const { return waiting_tokens_[static_cast<std::size_t>(size)]; }
  // It is about to wait.
  void Count(const Task& task);
  std::shared_ptr<Task> Take(Line& line, Line::Position position);
  bool IsReady(const Task& task) const;
  bool PrefillMayLeave() const;
  bool PrefillIsDue() const { return decode_launches_in_a_row_ >= limits_.max_decode_launches_in_a_row; }
  Tasks FormFrom(WorkSize size);
  // The one at `front` and those that may leave with it.
  Batch Gather(const Line& line, Line::Position front) const;
  bool MayLeave(const Batch& batch, WorkSize size) const;
  // The decode launches of a key that run; null: none does.
  const Launches* LaunchesOf(absl::string_view key) const;
  bool MayHaveOneMore(const Launches& launches) const;
  // For another to leave beside them.
  static bool IsLargeEnough(std::int64_t tokens, const Launches& launches) { return tokens >= (Largest(launches) + 1) / 2; }
  static std::int64_t Largest(const Launches& launches);

  const BatchLimits limits_;
  const int num_lanes_;
  std::array<Line, 2> lines_;                              // by WorkSize
  std::array<std::int64_t, 2> waiting_tokens_ = {};        // of each line
  absl::Time earliest_deadline_ = absl::InfiniteFuture();  // of all that wait, or earlier
  int num_running_prefills_ = 0;
  int decode_launches_in_a_row_ = 0;  // while prefill waited
  std::uint64_t num_releases_ = 0;
  absl::flat_hash_map<std::string, Launches> running_;  // the decode launches of each key
};

}  // namespace ridgeline::engine
