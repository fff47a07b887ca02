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
  task->place = line(task->traits.size).Push(task->traits.client, ticket, task);
}

void BatchFormer::PushBack(const std::shared_ptr<Task>& task) { line(task->traits.size).PushBack(task->place, task); }

bool BatchFormer::Remove(const Task& task) {
  Line& own_line = line(task.traits.size);
  const Line::Position position = own_line.Find(task.place);
  if (position == own_line.items().end() || position->second.get() != &task) return false;
  own_line.Take(position);
  return true;
}

BatchFormer::Tasks BatchFormer::TakeExpired(absl::Time now) {
  Tasks expired;
  for (Line& each : lines_) {
    for (auto position = each.items().begin(); position != each.items().end();) {
      const Line::Position here = position++;
      if (here->second->traits.deadline <= now) expired.push_back(each.Take(here));
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
      for (const Line::Position member : batch.members) tasks.push_back(own_line.Take(member));
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
  if (size == WorkSize::kPrefill) return true;
  const auto found = running_.find(KeyOf(*batch.members.front()->second));
  if (found == running_.end()) return true;
  const std::vector<std::int64_t>& launches = found->second;
  if (static_cast<int>(launches.size()) >= limits_.max_decode_launches_per_key) return false;
  return batch.is_full || batch.tokens >= *std::max_element(launches.begin(), launches.end());
}

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
  std::vector<std::int64_t>& launches = found->second;
  launches.erase(std::find(launches.begin(), launches.end(), claim.tokens));
  if (launches.empty()) running_.erase(found);
}

}  // namespace ridgeline::engine
