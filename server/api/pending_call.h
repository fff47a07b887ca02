// The engine's call that a stream waits for: one at a time, cancelled with the stream.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "server/base/mutex.h"
#include "server/engine/call.h"

namespace ridgeline::api {

// Thread-safe.
class PendingCall {
 public:
  // `start` starts a call whose answer begins with Answered(); the answer may come before `start` returns, and another Start
  // before this one does.
  void Start(absl::FunctionRef<std::shared_ptr<engine::Call>()> start);
  void Answered();

  // Of the call under way, and of all started later.
  void Cancel();

 private:
  base::Mutex mutex_;
  std::int64_t num_started_ ABSL_GUARDED_BY(mutex_) = 0;
  std::int64_t num_answered_ ABSL_GUARDED_BY(mutex_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<engine::Call> call_ ABSL_GUARDED_BY(mutex_);  // null while none is under way
};

}  // namespace ridgeline::api
