// The threads that serve asynchronous streams, each with a queue of its own. The streams of a channel share one, so that who
// finds something to read on its socket reads it for streams of its own, and wakes nobody.
//
//   streams of a channel ──operations──► gRPC ──► their queue ──► its thread ──► the operation's Done
//
// gRPC's own threads for callbacks are one for every two processors, and each event wakes the next of them: on a host of 16
// processors that took half of what 128 streams cost.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/channel.h"
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
    int num_channels = 0;  // with streams
  };

  static StreamThreads& Get();

  // For one more stream of the channel; null if the system refuses the first thread.
  Thread* Join(const grpc::Channel& channel);
  // A stream of the channel that had joined has ended.
  void Leave(const grpc::Channel& channel);

 private:
  struct Place {
    Thread* thread = nullptr;
    int num_streams = 0;
  };

  // For another channel.
  Thread* ChooseThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Thread* AddThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Thread>> threads_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<const grpc::Channel*, Place> places_ ABSL_GUARDED_BY(mutex_);  // of channels with streams
};

}  // namespace ridgeline::client
