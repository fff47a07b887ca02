// Where the work of all lanes completes: one queue, served by one thread.
//
//   lane ─► event on the stream, batch into the queue ─► the thread looks at the events until the stream has come to one ─►
//   `done`
//
// Being woken takes longer than the decode step of one client: so the thread looks without a pause at first, and less and less
// often as it waits, until more is posted. While no work is under way it sleeps.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/mutex.h"
#include "server/device/cuda_context.h"
#include "server/device/cuda_handles.h"
#include "server/device/lane_progress.h"

namespace ridgeline::device {

// Thread-safe, but for the work of one lane, which comes from one thread at a time.
class CompletionQueue {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;

  // `lanes` outlive the queue. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<CompletionQueue>> Create(CudaContext& context, absl::Span<LaneProgress> lanes);

  ~CompletionQueue();  // completes what was posted
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // When the stream has come to this point, or the device is lost: the first `num_items` of the lane's items of work count as
  // completed, and `done` gets `issued`, or the loss.
  void Post(int lane, cudaStream_t stream, std::int64_t num_items, absl::Status issued, Done done) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Batch {
    std::optional<CudaEvent> reached;  // none: the stream has come to it
    std::int64_t num_items;
    absl::Status status;
    Done done;
  };

  CompletionQueue(CudaContext& context, absl::Span<LaneProgress> lanes)
      : context_(context), lanes_(lanes), batches_(lanes.size()) {}

  // A recorded event; none if the stream was waited for in its stead.
  std::optional<CudaEvent> Mark(cudaStream_t stream) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<CudaEvent> TakeEvent() ABSL_LOCKS_EXCLUDED(mutex_);

  void Loop();
  // Waits until work is under way; false when none is and the queue is to stop.
  bool AwaitWork() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits a little, the longer it has `waited`; true if more was posted.
  bool Pause(absl::Duration waited) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of all lanes; whether there was anything.
  bool CompleteReached() ABSL_LOCKS_EXCLUDED(mutex_);
  bool CompleteReached(int lane) ABSL_LOCKS_EXCLUDED(mutex_);
  // The lane's oldest batch, or null. It stays where it is until the thread takes it out: others only append.
  Batch* Front(int lane) ABSL_LOCKS_EXCLUDED(mutex_);
  Batch PopFront(int lane) ABSL_LOCKS_EXCLUDED(mutex_);
  // Not under the mutex: lanes post while CUDA is asked.
  bool HasBeenReached(const Batch& batch) ABSL_LOCKS_EXCLUDED(mutex_);
  void Complete(int lane, Batch batch) ABSL_LOCKS_EXCLUDED(mutex_);

  CudaContext& context_;
  const absl::Span<LaneProgress> lanes_;

  base::Mutex mutex_;
  base::CondVar posted_or_stop_;
  std::vector<std::deque<Batch>> batches_ ABSL_GUARDED_BY(mutex_);  // [lanes], each in the order of its stream
  int num_batches_ ABSL_GUARDED_BY(mutex_) = 0;
  bool posted_ ABSL_GUARDED_BY(mutex_) = false;  // since AwaitWork
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<CudaEvent> free_events_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace ridgeline::device
