// The thread behind a lane: it runs what was queued, in order.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "server/device/lane_progress.h"

namespace ridgeline::device {

// Work is queued by one thread at a time; it comes in batches, each ended by a completion.
class LaneWorker {
 public:
  // Work that follows a failure in its batch is skipped.
  using Work = absl::AnyInvocable<absl::Status()>;
  using Completion = absl::AnyInvocable<void(absl::Status)>;

  // `progress` counts what is queued and done, and outlives the worker. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<LaneWorker>> Create(const std::string& thread_name, LaneProgress& progress);

  ~LaneWorker();  // runs what is queued
  LaneWorker(const LaneWorker&) = delete;
  LaneWorker& operator=(const LaneWorker&) = delete;

  // Starts at the latest when the batch ends.
  void Queue(Work work) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the batch: `done` gets the first error in it.
  void QueueCompletion(Completion done) ABSL_LOCKS_EXCLUDED(mutex_);

  // Likewise, but if the thread sleeps the batch runs here and now, which spares waking it: for work that takes less time.
  void RunOrQueueCompletion(Completion done) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Item {
    Work work;  // null: a completion
    Completion done;
  };

  explicit LaneWorker(LaneProgress& progress) : progress_(progress) {}
  void QueueItem(Item item) ABSL_LOCKS_EXCLUDED(mutex_);
  void Loop();
  void Run(Item& item);
  // Replaces `items`, which have run, with what was queued since; waits for it. None: the worker is to stop.
  void TakeItems(std::vector<Item>& items) ABSL_LOCKS_EXCLUDED(mutex_);

  LaneProgress& progress_;
  base::Mutex mutex_;
  base::CondVar queued_or_stop_;
  std::vector<Item> queue_ ABSL_GUARDED_BY(mutex_);
  bool sleeping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status batch_status_;  // of whoever runs the batch
  std::thread thread_;
};

}  // namespace ridgeline::device
