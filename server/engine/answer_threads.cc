#include "server/engine/answer_threads.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/device/start_thread.h"

namespace ridgeline::engine {

AnswerThreads::AnswerThreads(int num_threads) {
  for (int i = 0; i < num_threads; ++i) {
    absl::StatusOr<std::thread> thread = device::StartThread(absl::StrCat("answer-", i), [this] { Serve(); });
    if (!thread.ok()) {
      base::Log(base::LogLevel::kWarning, "fewer threads answer", {{"error", thread.status().message()}});
      return;
    }
    threads_.push_back(*std::move(thread));
  }
}

AnswerThreads::~AnswerThreads() {
  {
    base::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void AnswerThreads::Post(Answer answer) {
  if (threads_.empty()) return answer();
  base::MutexLock lock(&mutex_);
  posted_.push_back(std::move(answer));
  changed_.Signal();
}

void AnswerThreads::Serve() {
  while (true) {
    Answer answer;
    {
      base::MutexLock lock(&mutex_);
      while (posted_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (posted_.empty()) return;
      answer = std::move(posted_.front());
      posted_.pop_front();
    }
    answer();
  }
}

}  // namespace ridgeline::engine
