#include "server/device/completion_queue.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/time/time.h"
#include "server/base/status_macros.h"
#include "server/device/start_thread.h"

namespace ridgeline::device {
namespace {

// How often events are looked at without being told to: a device in error runs no host function.
constexpr absl::Duration kLookAtLeastEvery = absl::Milliseconds(10);

}  // namespace

absl::StatusOr<std::unique_ptr<CompletionQueue>> CompletionQueue::Create(CudaContext& context, absl::Span<LaneProgress> lanes) {
  auto queue = absl::WrapUnique(new CompletionQueue(context, lanes));
  RIDGELINE_ASSIGN_OR_RETURN(queue->thread_, StartThread("completions", [queue = queue.get()] { queue->Loop(); }));
  return queue;
}

CompletionQueue::~CompletionQueue() {
  if (!thread_.joinable()) return;
  {
    base::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

void CompletionQueue::Post(int lane, cudaStream_t stream, std::int64_t num_items, absl::Status issued, Done done) {
  std::optional<CudaEvent> reached = Mark(stream);
  const bool is_reached = !reached.has_value();
  {
    base::MutexLock lock(&mutex_);
    batches_[lane].push_back(
        {.reached = std::move(reached), .num_items = num_items, .status = std::move(issued), .done = std::move(done)});
    ++num_batches_;
    woken_ = woken_ || is_reached;
  }
  // Behind the event and after the batch is in the queue: whoever is woken finds both. Should it fail, the thread looks anyway.
  if (!is_reached) (void)RIDGELINE_CUDA_CALL(context_, cudaLaunchHostFunc, stream, OnReached, this);
  changed_.SignalAll();
}

std::optional<CudaEvent> CompletionQueue::Mark(cudaStream_t stream) {
  absl::StatusOr<CudaEvent> event = TakeEvent();
  if (event.ok() && RIDGELINE_CUDA_CALL(context_, cudaEventRecord, event->get(), stream).ok()) {
    return std::optional<CudaEvent>(*std::move(event));
  }
  // Memory must not go back while the stream uses it. Waiting holds up this lane alone; a device that can't even do that is
  // lost.
  const absl::Status waited = RIDGELINE_CUDA_CALL(context_, cudaStreamSynchronize, stream);
  if (!waited.ok()) context_.loss().Lose(waited);
  return std::nullopt;
}

absl::StatusOr<CudaEvent> CompletionQueue::TakeEvent() {
  {
    base::MutexLock lock(&mutex_);
    if (!free_events_.empty()) {
      CudaEvent event = std::move(free_events_.back());
      free_events_.pop_back();
      return event;
    }
  }
  return CudaEvent::Create(context_);
}

void CUDART_CB CompletionQueue::OnReached(void* queue) { static_cast<CompletionQueue*>(queue)->Wake(); }

void CompletionQueue::Wake() {
  base::MutexLock lock(&mutex_);
  woken_ = true;
  changed_.SignalAll();
}

void CompletionQueue::Loop() {
  while (AwaitWork()) {
    for (int lane = 0; lane < static_cast<int>(lanes_.size()); ++lane) CompleteReached(lane);
  }
}

bool CompletionQueue::AwaitWork() {
  base::MutexLock lock(&mutex_);
  while (!woken_) {
    if (num_batches_ == 0) {
      if (stopping_) return false;
      changed_.Wait(&mutex_);
    } else if (!changed_.WaitWithTimeout(&mutex_, kLookAtLeastEvery)) {
      break;
    }
  }
  woken_ = false;
  return true;
}

void CompletionQueue::CompleteReached(int lane) {
  for (Batch* batch = Front(lane); batch != nullptr && HasBeenReached(*batch); batch = Front(lane)) {
    Complete(lane, PopFront(lane));
  }
}

CompletionQueue::Batch* CompletionQueue::Front(int lane) {
  base::MutexLock lock(&mutex_);
  return batches_[lane].empty() ? nullptr : &batches_[lane].front();
}

CompletionQueue::Batch CompletionQueue::PopFront(int lane) {
  base::MutexLock lock(&mutex_);
  Batch batch = std::move(batches_[lane].front());
  batches_[lane].pop_front();
  --num_batches_;
  return batch;
}

bool CompletionQueue::HasBeenReached(const Batch& batch) {
  if (!batch.reached.has_value()) return true;
  bool reached = false;
  const absl::Status status = context_.Call("cudaEventQuery", [&] {
    const cudaError_t error = cudaEventQuery(batch.reached->get());
    reached = error == cudaSuccess;
    return error == cudaErrorNotReady ? cudaSuccess : error;
  });
  // An error is that of work queued before, or the event's end: nobody can tell any more how far the stream has come.
  if (!status.ok()) context_.loss().Lose(status);
  return reached || !status.ok();
}

void CompletionQueue::Complete(int lane, Batch batch) {
  absl::Status status = context_.loss().status();
  if (status.ok()) status = std::move(batch.status);
  // Before `done`, whose caller finds the lane idle. Its items are completed when the stream has run them, not when they were
  // issued: memory that they used is free for others from here on.
  lanes_[lane].completed.store(batch.num_items, std::memory_order_release);
  if (batch.reached.has_value()) {
    base::MutexLock lock(&mutex_);
    free_events_.push_back(*std::move(batch.reached));
  }
  batch.done(std::move(status));
}

}  // namespace ridgeline::device
