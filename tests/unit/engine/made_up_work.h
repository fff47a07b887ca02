// Works whose behaviour the test chooses, for the scheduler's tests: they compute nothing, but keep a record of what is done
// with them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/base/notification.h"
#include "server/engine/task.h"
#include "server/engine/work.h"

namespace ridgeline::engine {

// A task that nobody runs, for tests of the line.
inline std::shared_ptr<Task> MakeTask(WorkTraits traits) {
  return std::make_shared<Task>(/*work=*/nullptr, std::move(traits), absl::UnixEpoch());
}

// What has happened to all works of a test, in order. Thread-safe.
class WorkRecord {
 public:
  // The names of the members of each launch that reached its Queue.
  std::vector<std::vector<std::string>> launches() const ABSL_LOCKS_EXCLUDED(mutex_) {
    base::MutexLock lock(&mutex_);
    return launches_;
  }
  void AddLaunch(std::vector<std::string> names) ABSL_LOCKS_EXCLUDED(mutex_) {
    base::MutexLock lock(&mutex_);
    launches_.push_back(std::move(names));
  }

 private:
  mutable base::Mutex mutex_;
  std::vector<std::vector<std::string>> launches_ ABSL_GUARDED_BY(mutex_);
};

// One work's fate as the test sees it. Outlives the work.
struct Fate {
  explicit Fate(std::string work_name) : name(std::move(work_name)) {}

  // Waits for Finish.
  absl::Status Wait() { return finished.WaitWithTimeout(absl::Minutes(1)) ? status : absl::UnknownError("not finished"); }

  const std::string name;
  std::function<absl::StatusOr<Turn>()> begin = [] { return Turn::kGo; };
  std::function<absl::Status(device::Lane&)> queue = [](device::Lane&) { return absl::OkStatus(); };

  base::Notification finished;
  absl::Status status;                 // of Finish
  std::vector<absl::Status> outcomes;  // of each Release, in order
  int num_begins = 0;
  int num_drops = 0;
};

class MadeUpWork final : public Work {
 public:
  MadeUpWork(Fate& fate, WorkRecord& record) : fate_(fate), record_(record) {}

  absl::StatusOr<Turn> Begin(absl::Duration /*queue_time*/) override {
    ++fate_.num_begins;
    return fate_.begin();
  }
  std::unique_ptr<Launch> MakeLaunch(absl::Span<Work* const> members) override;
  void Drop() override { ++fate_.num_drops; }
  void Finish(const absl::Status& status) override {
    fate_.status = status;
    fate_.finished.Notify();
  }

 private:
  friend class MadeUpLaunch;

  Fate& fate_;
  WorkRecord& record_;
};

class MadeUpLaunch final : public Launch {
 public:
  explicit MadeUpLaunch(std::vector<MadeUpWork*> members) : members_(std::move(members)) {}

  absl::Status Queue(device::Lane& lane, const device::CancelToken& /*cancel*/) override {
    std::vector<std::string> names;
    for (const MadeUpWork* member : members_) names.push_back(member->fate_.name);
    members_.front()->record_.AddLaunch(std::move(names));
    for (const MadeUpWork* member : members_) {
      if (absl::Status status = member->fate_.queue(lane); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  void Release(absl::Span<const absl::Status> outcomes) override {
    for (std::size_t i = 0; i < members_.size(); ++i) members_[i]->fate_.outcomes.push_back(outcomes[i]);
  }

 private:
  const std::vector<MadeUpWork*> members_;
};

inline std::unique_ptr<Launch> MadeUpWork::MakeLaunch(absl::Span<Work* const> members) {
  std::vector<MadeUpWork*> own;
  for (Work* member : members) own.push_back(static_cast<MadeUpWork*>(member));
  return std::make_unique<MadeUpLaunch>(std::move(own));
}

}  // namespace ridgeline::engine
