#include "server/engine/kv_cache/eviction.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace ridgeline::engine::kv_cache {
namespace {

// What the pool would look like without the victims so far.
class Forecast {
 public:
  Forecast(const PagePool& pool, const absl::flat_hash_set<std::int32_t>& shared_pages)
      : pool_(pool), shared_pages_(shared_pages) {}

  void Evict(const Sequence& sequence) {
    for (const std::int32_t page : sequence.table) {
      if (pool_.references(page) > 1) ++released_[page];
      if (IsGain(page)) ++gain_;
    }
  }

  // Pages that need not be found elsewhere.
  std::int64_t gain() const { return gain_; }

  bool Helps(const Sequence& victim) const {
    return std::any_of(victim.table.begin(), victim.table.end(), [this](std::int32_t page) { return IsGain(page); });
  }

 private:
  std::int64_t References(std::int32_t page) const {
    if (pool_.references(page) == 1) return 0;  // the victim's own
    const auto released = released_.find(page);
    return pool_.references(page) - (released == released_.end() ? 0 : released->second);
  }

  // Of a page that a victim has.
  bool IsGain(std::int32_t page) const {
    const std::int64_t references = References(page);
    return references == 0 || (references == 1 && shared_pages_.contains(page));
  }

  const PagePool& pool_;
  const absl::flat_hash_set<std::int32_t>& shared_pages_;
  absl::flat_hash_map<std::int32_t, std::int64_t> released_;  // of pages that several share
  std::int64_t gain_ = 0;
};

}  // namespace

std::optional<std::vector<Sequence*>> ChooseVictims(const std::list<Sequence*>& by_use, const PagePool& pool,
                                                    const absl::flat_hash_set<std::int32_t>& shared_pages,
                                                    std::int64_t shortage) {
  std::vector<Sequence*> victims;
  Forecast forecast(pool, shared_pages);
  for (Sequence* const sequence : by_use) {
    if (forecast.gain() >= shortage) break;
    if (sequence->IsBusy() || sequence->state != Sequence::State::kListed || sequence->table.empty()) continue;
    victims.push_back(sequence);
    forecast.Evict(*sequence);
  }
  if (forecast.gain() < shortage) return std::nullopt;
  victims.erase(
      std::remove_if(victims.begin(), victims.end(), [&](const Sequence* victim) { return !forecast.Helps(*victim); }),
      victims.end());
  return victims;
}

}  // namespace ridgeline::engine::kv_cache
