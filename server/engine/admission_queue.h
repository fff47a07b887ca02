// Who may come in, and who is next. Bounded in waiting requests and in device bytes of all that were admitted; first come,
// first served.
#pragma once

#include <cstdint>
#include <iterator>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/common/saturating.h"
#include "server/base/error.h"
#include "server/base/units.h"

namespace ridgeline::engine {

// Item is cheap to move. Not thread-safe: its owner's mutex guards it.
template <typename Item>
class AdmissionQueue {
 public:
  // Place in the line: who has the smaller ticket came first.
  using Ticket = std::uint64_t;

  AdmissionQueue(int max_waiting, std::int64_t max_admitted_bytes)
      : max_waiting_(max_waiting), max_admitted_bytes_(max_admitted_bytes) {}

  // Counts the bytes as admitted, until Discharge. Errors: RESOURCE_EXHAUSTED (QUEUE_FULL) with `retry_delay`. Work that is
  // larger than the whole budget is admitted while nothing else is.
  absl::Status Admit(std::int64_t bytes, bool must_wait, absl::Duration retry_delay) {
    if (must_wait && full()) {
      return Full(absl::StrCat(waiting_.size(), " requests wait, which is the limit"), retry_delay);
    }
    const std::int64_t total_bytes = kernels::SaturatingAdd(admitted_bytes_, bytes);
    if (admitted_bytes_ > 0 && total_bytes > max_admitted_bytes_) {
      return Full(
          absl::StrCat("the request needs ", base::FormatBytes(bytes), " beside the ", base::FormatBytes(admitted_bytes_),
                       " of admitted requests; the limit is ", base::FormatBytes(max_admitted_bytes_)),
          retry_delay);
    }
    admitted_bytes_ = total_bytes;
    return absl::OkStatus();
  }

  // Admitted work has ended, wherever it was.
  void Discharge(std::int64_t bytes) { admitted_bytes_ -= bytes; }

  // Waits behind all with smaller tickets: work that comes back takes its old place, even in a full queue.
  void Push(Ticket ticket, absl::Time deadline, Item item) {
    auto after = waiting_.end();
    while (after != waiting_.begin() && std::prev(after)->ticket > ticket) --after;
    waiting_.insert(after, {ticket, deadline, std::move(item)});
  }

  // The next in line; the queue is not empty.
  const Item& Front() const { return waiting_.front().item; }
  Item Pop() {
    Item item = std::move(waiting_.front().item);
    waiting_.pop_front();
    return item;
  }

  // Takes one out of the line; null if it does not wait.
  std::optional<Item> Remove(Ticket ticket) {
    for (auto entry = waiting_.begin(); entry != waiting_.end(); ++entry) {
      if (entry->ticket != ticket) continue;
      std::optional<Item> item = std::move(entry->item);
      waiting_.erase(entry);
      return item;
    }
    return std::nullopt;
  }

  // Takes out all whose deadline has come.
  std::vector<Item> TakeExpired(absl::Time now) {
    std::vector<Item> expired;
    for (auto entry = waiting_.begin(); entry != waiting_.end();) {
      if (entry->deadline > now) {
        ++entry;
        continue;
      }
      expired.push_back(std::move(entry->item));
      entry = waiting_.erase(entry);
    }
    return expired;
  }

  std::vector<Item> Items() const {
    std::vector<Item> items;
    for (const Waiting& waiting : waiting_) items.push_back(waiting.item);
    return items;
  }

  bool full() const { return size() >= max_waiting_; }
  bool empty() const { return waiting_.empty(); }
  int size() const { return static_cast<int>(waiting_.size()); }
  std::int64_t admitted_bytes() const { return admitted_bytes_; }

 private:
  struct Waiting {
    Ticket ticket;
    absl::Time deadline;
    Item item;
  };

  static absl::Status Full(const std::string& why, absl::Duration retry_delay) {
    absl::Status status = absl::ResourceExhaustedError(absl::StrCat("the queue is full: ", why));
    return base::WithRetryDelay(base::WithReason(std::move(status), base::kReasonQueueFull), retry_delay);
  }

  const int max_waiting_;
  const std::int64_t max_admitted_bytes_;
  std::list<Waiting> waiting_;  // tickets ascend
  std::int64_t admitted_bytes_ = 0;
};

}  // namespace ridgeline::engine
