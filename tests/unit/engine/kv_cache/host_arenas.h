// Arenas in host memory, counted, that run out when told to.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/error.h"
#include "server/base/mutex.h"
#include "server/device/buffer.h"

namespace ridgeline::engine::kv_cache {

// Thread-safe.
class HostArenas final : public device::BufferOwner {
 public:
  // Full of 0x7f: what nobody has written is recognised.
  absl::StatusOr<device::Buffer> Allocate(std::int64_t size_bytes) {
    base::MutexLock lock(&mutex_);
    if (fails_) {
      return base::WithReason(absl::ResourceExhaustedError("no memory for the arena"), base::kReasonOutOfMemory);
    }
    void* const data = std::malloc(size_bytes);
    std::memset(data, 0x7f, size_bytes);
    ++num_live_;
    return device::Buffer(this, data, size_bytes);
  }

  void Free(void* data) override {
    std::free(data);
    base::MutexLock lock(&mutex_);
    --num_live_;
  }

  void set_fails(bool fails) {
    base::MutexLock lock(&mutex_);
    fails_ = fails;
  }

  std::int64_t num_live() const {
    base::MutexLock lock(&mutex_);
    return num_live_;
  }

 private:
  mutable base::Mutex mutex_;
  bool fails_ ABSL_GUARDED_BY(mutex_) = false;
  std::int64_t num_live_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ridgeline::engine::kv_cache
