// Keeps a log readable, and the disk free, when the same thing goes wrong a thousand times a second.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace ridgeline::base {

// Lets a few lines through each second, and counts the others. Thread-safe.
class LogSampler {
 public:
  explicit LogSampler(int lines_per_second) : lines_per_second_(lines_per_second) {}

  // How many lines were held back since the last that was not, if this one is to be written; nothing: hold it back.
  std::optional<std::int64_t> Admit(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    if (now - second_begin_ >= absl::Seconds(1)) {
      second_begin_ = now;
      num_in_second_ = 0;
    }
    if (num_in_second_ >= lines_per_second_) {
      ++num_held_back_;
      return std::nullopt;
    }
    ++num_in_second_;
    const std::int64_t held_back = num_held_back_;
    num_held_back_ = 0;
    return held_back;
  }

 private:
  const int lines_per_second_;
  Mutex mutex_;
  absl::Time second_begin_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int num_in_second_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t num_held_back_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ridgeline::base
