#include "client/cpp/stream_threads.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace ridgeline::client {
namespace {

constexpr int kMaxThreads = 4;
constexpr int kStreamsOfAThread = 32;  // before another is started

void Serve(grpc::CompletionQueue& queue) {
  void* operation;
  bool ok;
  while (queue.Next(&operation, &ok)) static_cast<StreamOperation*>(operation)->Done(ok);
}

}  // namespace

StreamThreads& StreamThreads::Get() {
  static StreamThreads* const threads = new StreamThreads;
  return *threads;
}

StreamThreads::Thread* StreamThreads::Join() {
  absl::MutexLock lock(&mutex_);
  const auto fewest = std::min_element(threads_.begin(), threads_.end(),
                                       [](const auto& a, const auto& b) { return a->num_streams < b->num_streams; });
  Thread* thread = fewest != threads_.end() ? fewest->get() : nullptr;
  if (thread == nullptr || (thread->num_streams >= kStreamsOfAThread && threads_.size() < kMaxThreads)) {
    if (Thread* const added = AddThread(); added != nullptr) thread = added;
  }
  if (thread != nullptr) ++thread->num_streams;
  return thread;
}

StreamThreads::Thread* StreamThreads::AddThread() {
  auto added = std::make_unique<Thread>();
  try {
    added->thread = std::thread([&queue = added->queue] { Serve(queue); });
  } catch (const std::system_error&) {
    added->queue.Shutdown();
    return nullptr;
  }
  threads_.push_back(std::move(added));
  return threads_.back().get();
}

void StreamThreads::Leave(Thread& thread) {
  absl::MutexLock lock(&mutex_);
  --thread.num_streams;
}

}  // namespace ridgeline::client
