#include "server/engine/batch_former.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace ridgeline::engine {
namespace {

// Empty: it shares its launch with nobody.
absl::string_view KeyOf(const Task& task) {
  return task.leaves_alone ? absl::string_view() : absl::string_view(task.traits.batch_key);
}

std::int64_t CountTokens(const BatchFormer::Tasks& tasks) {
  std::int64_t tokens = 0;
  for (const std::shared_ptr<Task>& task : tasks) tokens += task->traits.tokens;
  return tokens;
}

}  // namespace

// ---- The line ---------------------------------------------------------------------------------------------------------------

void BatchFormer::Push(const std::shared_ptr<Task>& task, std::uint64_t ticket) {
  Count(*task);
  task->place = line(task->traits.size).Push(task->traits.client, ticket, task);
}

void BatchFormer::PushBack(const std::shared_ptr<Task>& task) {
  Count(*task);
  line(task->traits.size).PushBack(task->place, task);
}

void BatchFormer::Count(const Task& task) {
  waiting_tokens(task.traits.size) += task.traits.tokens;
  earliest_deadline_ = std::min(earliest_deadline_, task.traits.deadline);
}

std::shared_ptr<Task> BatchFormer::Take(Line& line, Line::Position position) {
  std::shared_ptr<Task> task = line.Take(position);
  waiting_tokens(task->traits.size) -= task->traits.tokens;
  return task;
}

bool BatchFormer::Remove(const Task& task) {
  Line& own_line = line(task.traits.size);
  const Line::Position position = own_line.Find(task.place);
  if (position == own_line.items().end() || position->second.get() != &task) return false;
  Take(own_line, position);
  return true;
}

BatchFormer::Tasks BatchFormer::TakeExpired(absl::Time now) {
  Tasks expired;
  if (now < earliest_deadline_) return expired;
  earliest_deadline_ = absl::InfiniteFuture();
  for (Line& each : lines_) {
    for (auto position = each.items().begin(); position != each.items().end();) {
      const Line::Position here = position++;
      const absl::Time deadline = here->second->traits.deadline;
      if (deadline <= now) {
        expired.push_back(Take(each, here));
      } else {
        earliest_deadline_ = std::min(earliest_deadline_, deadline);
      }
    }
  }
  return expired;
}

BatchFormer::Tasks BatchFormer::tasks() const {
  Tasks all;
  for (const Line& each : lines_) {
    for (const auto& [place, task] : each.items()) all.push_back(task);
  }
  return all;
}

// ---- Who leaves -------------------------------------------------------------------------------------------------------------

BatchFormer::Departure BatchFormer::Form(absl::Time now) {
  Departure departure{.expired = TakeExpired(now)};
  std::array<WorkSize, 2> order = {WorkSize::kDecode, WorkSize::kPrefill};
  if (PrefillIsDue()) std::swap(order[0], order[1]);
  for (const WorkSize size : order) {
    departure.tasks = FormFrom(size);
    if (!departure.tasks.empty()) break;
  }
  return departure;
}

BatchFormer::Tasks BatchFormer::FormFrom(WorkSize size) {
  if (size == WorkSize::kPrefill && !PrefillMayLeave()) return {};
  Line& own_line = line(size);
  std::vector<absl::string_view> collecting;  // keys whose tasks wait for more of them
  for (auto front = own_line.items().begin(); front != own_line.items().end(); ++front) {
    const absl::string_view key = KeyOf(*front->second);
    if (!IsReady(*front->second) || std::find(collecting.begin(), collecting.end(), key) != collecting.end()) continue;
    const Batch batch = Gather(own_line, front);
    if (MayLeave(batch, size)) {
      Tasks tasks;
      for (const Line::Position member : batch.members) tasks.push_back(Take(own_line, member));
      return tasks;
    }
    collecting.push_back(key);
  }
  return {};
}

BatchFormer::Batch BatchFormer::Gather(const Line& line, Line::Position front) const {
  Batch batch{.members = {front}, .tokens = front->second->traits.tokens};
  const absl::string_view key = KeyOf(*front->second);
  if (key.empty()) return batch;
  for (auto next = std::next(front); next != line.items().end(); ++next) {
    const Task& task = *next->second;
    if (KeyOf(task) != key || !IsReady(task)) continue;
    batch.is_full = static_cast<int>(batch.members.size()) >= limits_.max_requests;
    if (batch.is_full) break;
    if (batch.tokens + task.traits.tokens > limits_.max_tokens) {
      batch.is_full = true;
      continue;
    }
    batch.members.push_back(next);
    batch.tokens += task.traits.tokens;
  }
  return batch;
}

bool BatchFormer::IsReady(const Task& task) const { return task.num_ahead == 0 && task.refused_at != num_releases_; }

bool BatchFormer::PrefillMayLeave() const {
  if (num_running_prefills_ < std::max(1, num_lanes_ - 1)) return true;
  const Line::Items& decode = line(WorkSize::kDecode).items();
  return std::none_of(decode.begin(), decode.end(), [this](const auto& waiting) { return IsReady(*waiting.second); });
}

bool BatchFormer::MayLeave(const Batch& batch, WorkSize size) const {
  const Launches* launches = size == WorkSize::kDecode ? LaunchesOf(KeyOf(*batch.members.front()->second)) : nullptr;
  return launches == nullptr || (MayHaveOneMore(*launches) && (batch.is_full || IsLargeEnough(batch.tokens, *launches)));
}

bool BatchFormer::MayLetOneLeave(const Task& pushed) const {
  if (!IsReady(pushed)) return false;
  const WorkSize size = pushed.traits.size;
  const Launches* launches = size == WorkSize::kDecode ? LaunchesOf(KeyOf(pushed)) : nullptr;
  if (launches == nullptr) return true;
  // As if all of the line had this key.
  const bool may_be_full = line(size).size() > limits_.max_requests || waiting_tokens(size) > limits_.max_tokens;
  return MayHaveOneMore(*launches) && (may_be_full || IsLargeEnough(waiting_tokens(size), *launches));
}

const BatchFormer::Launches* BatchFormer::LaunchesOf(absl::string_view key) const {
  const auto found = running_.find(key);
  return found == running_.end() ? nullptr : &found->second;
}

bool BatchFormer::MayHaveOneMore(const Launches& launches) const {
  return static_cast<int>(launches.size()) < limits_.max_decode_launches_per_key;
}

std::int64_t BatchFormer::Largest(const Launches& launches) { return *std::max_element(launches.begin(), launches.end()); }

// ---- What runs --------------------------------------------------------------------------------------------------------------

BatchFormer::Claim BatchFormer::Leave(const Tasks& tasks) {
  const Task& first = *tasks.front();
  Claim claim{.size = first.traits.size, .key = std::string(KeyOf(first)), .tokens = CountTokens(tasks)};
  if (claim.size == WorkSize::kPrefill) {
    ++num_running_prefills_;
    decode_launches_in_a_row_ = 0;
  } else {
    decode_launches_in_a_row_ = line(WorkSize::kPrefill).empty() ? 0 : decode_launches_in_a_row_ + 1;
    if (!claim.key.empty()) running_[claim.key].push_back(claim.tokens);
  }
  return claim;
}

void BatchFormer::Return(const Claim& claim) {
  if (claim.size == WorkSize::kPrefill) {
    --num_running_prefills_;
    return;
  }
  if (claim.key.empty()) return;
  const auto found = running_.find(claim.key);
  Launches& launches = found->second;
  launches.erase(std::find(launches.begin(), launches.end(), claim.tokens));
  if (launches.empty()) running_.erase(found);
}

}  // namespace ridgeline::engine
