// The threads that serve asynchronous streams, each with a queue of its own. There is one for every few streams, so that a
// single stream's events wake no thread but its own.
//
//   stream ──operation──► gRPC ──► its queue ──► its thread ──► the operation's Done
//
// gRPC's own threads for callbacks are one for every two processors, and each event wakes the next of them: on a host of 16
// processors that took half of what 128 streams cost.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/completion_queue.h"

namespace ridgeline::client {

// Something that gRPC does for a stream; its address is the tag. It lives until Done has begun.
class StreamOperation {
 public:
  virtual ~StreamOperation() = default;
  virtual void Done(bool ok) = 0;
};

// Thread-safe. Lives as long as the process: a stream's last event may come at any time.
class StreamThreads {
 public:
  struct Thread {
    grpc::CompletionQueue queue;
    std::thread thread;
    int num_streams = 0;
  };

  static StreamThreads& Get();

  // For one more stream; null if the system refuses the first thread.
  Thread* Join();
  // The stream that had joined has ended.
  void Leave(Thread& thread);

 private:
  Thread* AddThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Thread>> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ridgeline::client
