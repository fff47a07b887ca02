#include "server/api/pending_call.h"

#include <utility>

namespace ridgeline::api {

void PendingCall::Start(absl::FunctionRef<std::shared_ptr<engine::Call>()> start) {
  std::int64_t idx;
  {
    base::MutexLock lock(&mutex_);
    idx = ++num_started_;
  }
  std::shared_ptr<engine::Call> call = start();
  bool unwanted;
  {
    base::MutexLock lock(&mutex_);
    if (num_answered_ < idx) call_ = call;
    unwanted = cancelled_;
  }
  if (unwanted && call != nullptr) call->Cancel();
}

void PendingCall::Answered() {
  std::shared_ptr<engine::Call> answered;  // let go without the lock
  base::MutexLock lock(&mutex_);
  ++num_answered_;
  answered = std::move(call_);
}

void PendingCall::Cancel() {
  std::shared_ptr<engine::Call> call;
  {
    base::MutexLock lock(&mutex_);
    cancelled_ = true;
    call = call_;
  }
  if (call != nullptr) call->Cancel();
}

}  // namespace ridgeline::api
