// A line in which clients take turns: each has one item in a round, so that who sent a thousand delays nobody who sends one.
//
//   client a: a1 a2 a3 a4        round 1: a1 b1 c1
//   client b: b1           ──►   round 2: a2 c2
//   client c: c1 c2              round 3: a3 ...
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace ridgeline::engine {

// The smaller one is nearer to the front.
struct FairPlace {
  std::uint64_t round = 0;
  std::uint64_t ticket = 0;  // in the order of arrival

  auto operator<=>(const FairPlace&) const = default;
};

// Item is cheap to move. Not thread-safe.
template <typename Item>
class FairQueue {
 public:
  using Items = std::map<FairPlace, Item>;
  using Position = typename Items::const_iterator;

  // Behind the client's other items and those of this round. Tickets ascend. The place is the item's for as long as it lives.
  FairPlace Push(const std::string& client, std::uint64_t ticket, Item item) {
    const auto [line, is_new] = last_rounds_.try_emplace(client, round_);
    if (!is_new) line->second = std::max(round_, line->second + 1);
    const FairPlace place{line->second, ticket};
    items_.emplace(place, std::move(item));
    return place;
  }

  // An item comes back.
  void PushBack(FairPlace place, Item item) { items_.emplace(place, std::move(item)); }

  // From the front.
  const Items& items() const { return items_; }
  Position Find(FairPlace place) const { return items_.find(place); }

  Item Take(Position position) {
    const auto taken = items_.extract(position);
    AdvanceTo(items_.empty() ? taken.key().round : items_.begin()->first.round);
    return std::move(taken.mapped());
  }

  bool empty() const { return items_.empty(); }
  int size() const { return static_cast<int>(items_.size()); }
  std::size_t num_clients_known() const { return last_rounds_.size(); }

 private:
  void AdvanceTo(std::uint64_t round) {
    if (round <= round_) return;
    round_ = round;
    // Who had no turn in this round or later begins like one who was never here.
    absl::erase_if(last_rounds_, [this](const auto& line) { return line.second < round_; });
  }

  Items items_;
  std::uint64_t round_ = 0;                                      // in which the front is, or was
  absl::flat_hash_map<std::string, std::uint64_t> last_rounds_;  // of each client's last item
};

}  // namespace ridgeline::engine
