// Where the work of all lanes completes: one queue, served by one thread.
//
//   lane's thread ─► event on the stream, then a host function ─► the stream comes to them ─► the thread is woken, queries the
//                                                                 events, calls what waits for them
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
#include "absl/types/span.h"
#include "server/base/mutex.h"
#include "server/device/cuda_context.h"
#include "server/device/cuda_handles.h"
#include "server/device/lane_progress.h"

namespace ridgeline::device {

// Thread-safe, but for the work of one lane, which comes from one thread.
class CompletionQueue {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;

  // `lanes` outlive the queue. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<CompletionQueue>> Create(CudaContext& context, absl::Span<LaneProgress> lanes);

  ~CompletionQueue();  // completes what was posted; no stream will reach a host function any more
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
  static void CUDART_CB OnReached(void* queue);
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);

  void Loop();
  // Waits until there is reason to look at events; false when all is done and the queue is to stop.
  bool AwaitWork() ABSL_LOCKS_EXCLUDED(mutex_);
  void CompleteReached(int lane) ABSL_LOCKS_EXCLUDED(mutex_);
  // The lane's oldest batch, or null. It stays where it is until the thread takes it out: others only append.
  Batch* Front(int lane) ABSL_LOCKS_EXCLUDED(mutex_);
  Batch PopFront(int lane) ABSL_LOCKS_EXCLUDED(mutex_);
  // Not under the mutex: a host function waits for that, and CUDA may wait for the host function.
  bool HasBeenReached(const Batch& batch) ABSL_LOCKS_EXCLUDED(mutex_);
  void Complete(int lane, Batch batch) ABSL_LOCKS_EXCLUDED(mutex_);

  CudaContext& context_;
  const absl::Span<LaneProgress> lanes_;

  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<std::deque<Batch>> batches_ ABSL_GUARDED_BY(mutex_);  // [lanes], each in the order of its stream
  int num_batches_ ABSL_GUARDED_BY(mutex_) = 0;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<CudaEvent> free_events_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace ridgeline::device
