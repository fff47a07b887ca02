#include "server/device/completion_queue.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/time/time.h"
#include "server/base/status_macros.h"
#include "server/device/start_thread.h"

namespace ridgeline::device {
namespace {

// How long events are looked at without a pause: longer than the decode step of one client.
constexpr absl::Duration kLookOnFor = absl::Microseconds(200);
// Then a pause is this part of the time waited so far, which is how much later than it could a completion may come.
constexpr int kPauseFraction = 16;
constexpr absl::Duration kLongestPause = absl::Milliseconds(1);

using SteadyClock = std::chrono::steady_clock;

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
    posted_or_stop_.Signal();
  }
  thread_.join();
}

void CompletionQueue::Post(int lane, cudaStream_t stream, std::int64_t num_items, absl::Status issued, Done done) {
  std::optional<CudaEvent> reached = Mark(stream);
  base::MutexLock lock(&mutex_);
  batches_[lane].push_back(
      {.reached = std::move(reached), .num_items = num_items, .status = std::move(issued), .done = std::move(done)});
  ++num_batches_;
  posted_ = true;
  // Under the mutex: whoever finds the work completed may destroy this object.
  posted_or_stop_.Signal();
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

void CompletionQueue::Loop() {
  // Short sleeps last as long as they are meant to, not up to 50 µs longer. Should it fail, they do.
  (void)prctl(PR_SET_TIMERSLACK, 1000);
  while (AwaitWork()) {
    const SteadyClock::time_point begin = SteadyClock::now();
    while (!CompleteReached() && !Pause(absl::FromChrono(SteadyClock::now() - begin))) {
    }
  }
}

bool CompletionQueue::AwaitWork() {
  base::MutexLock lock(&mutex_);
  while (num_batches_ == 0 && !stopping_) posted_or_stop_.Wait(&mutex_);
  posted_ = false;
  return num_batches_ > 0;
}

bool CompletionQueue::Pause(absl::Duration waited) {
  if (waited < kLookOnFor) std::this_thread::yield();
  base::MutexLock lock(&mutex_);
  if (waited >= kLookOnFor && !posted_) {
    posted_or_stop_.WaitWithTimeout(&mutex_, std::min(waited / kPauseFraction, kLongestPause));
  }
  return posted_;
}

bool CompletionQueue::CompleteReached() {
  bool any = false;
  for (int lane = 0; lane < static_cast<int>(lanes_.size()); ++lane) any |= CompleteReached(lane);
  return any;
}

bool CompletionQueue::CompleteReached(int lane) {
  bool any = false;
  for (Batch* batch = Front(lane); batch != nullptr && HasBeenReached(*batch); batch = Front(lane)) {
    Complete(lane, PopFront(lane));
    any = true;
  }
  return any;
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
