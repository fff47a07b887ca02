#include "client/cpp/stream_threads.h"

#include <algorithm>
#include <cstddef>
#include <system_error>
#include <utility>

namespace ridgeline::client {
namespace {

constexpr std::size_t kMaxThreads = 4;

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

StreamThreads::Thread* StreamThreads::Join(const grpc::Channel& channel) {
  absl::MutexLock lock(&mutex_);
  const auto place = places_.try_emplace(&channel).first;
  if (place->second.thread == nullptr) {
    Thread* const chosen = ChooseThread();
    if (chosen == nullptr) {
      places_.erase(place);
      return nullptr;
    }
    place->second.thread = chosen;
    ++chosen->num_channels;
  }
  ++place->second.num_streams;
  return place->second.thread;
}

StreamThreads::Thread* StreamThreads::ChooseThread() {
  const auto fewest = std::min_element(threads_.begin(), threads_.end(),
                                       [](const auto& a, const auto& b) { return a->num_channels < b->num_channels; });
  Thread* const idlest = fewest != threads_.end() ? fewest->get() : nullptr;
  if (idlest != nullptr && (idlest->num_channels == 0 || threads_.size() == kMaxThreads)) return idlest;
  Thread* const added = AddThread();
  return added != nullptr ? added : idlest;
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

void StreamThreads::Leave(const grpc::Channel& channel) {
  absl::MutexLock lock(&mutex_);
  const auto place = places_.find(&channel);
  if (--place->second.num_streams > 0) return;
  --place->second.thread->num_channels;
  places_.erase(place);
}

}  // namespace ridgeline::client
