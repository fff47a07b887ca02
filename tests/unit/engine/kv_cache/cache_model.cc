#include "tests/unit/engine/kv_cache/cache_model.h"

#include <algorithm>
#include <set>

namespace ridgeline::engine::kv_cache {
namespace {

template <typename Range, typename Value>
bool Contains(const Range& range, const Value& value) {
  return std::find(range.begin(), range.end(), value) != range.end();
}

std::int64_t Longest(const CacheModel::Sequence& sequence) {
  std::int64_t longest = 0;
  for (const Tokens& tokens : sequence.layers) longest = std::max(longest, static_cast<std::int64_t>(tokens.size()));
  return longest;
}

std::vector<CacheModel::PagePtr> PresentTail(const CacheModel::Sequence& sequence, std::int64_t begin, std::int64_t end) {
  std::vector<CacheModel::PagePtr> pages;
  for (std::int64_t i = begin; i < std::min<std::int64_t>(end, sequence.table.size()); ++i) pages.push_back(sequence.table[i]);
  return pages;
}

void SetBusy(const CacheModel::Use& use, bool busy) {
  for (const CacheModel::Row& row : use.rows) {
    if (row.appended.empty()) {
      row.sequence->readers += busy ? 1 : -1;
    } else {
      row.sequence->written = busy;
    }
  }
}

}  // namespace

CacheModel::SequencePtr CacheModel::Add(const std::string& id, const std::string& owner, bool hidden, const Sequence* origin) {
  auto sequence = std::make_shared<Sequence>();
  if (origin != nullptr) {
    sequence->layers = origin->layers;
    sequence->table = origin->table;
  }
  sequence->layers.resize(layers_);
  sequence->id = id;
  sequence->owner = owner;
  sequence->hidden = hidden;
  by_use_.push_back(sequence);
  return sequence;
}

void CacheModel::Delete(const SequencePtr& sequence) {
  by_use_.remove(sequence);
  sequence->deleted = true;
  if (sequence->IsBusy()) {
    dropped_.push_back(sequence);
  } else {
    sequence->table.clear();
  }
}

void CacheModel::Truncate(Sequence& sequence, std::int64_t length) {
  for (Tokens& tokens : sequence.layers) tokens.resize(std::min<std::size_t>(tokens.size(), length));
  sequence.table.resize(PagesFor(Longest(sequence)));
}

void CacheModel::Touch(const SequencePtr& sequence) {
  by_use_.remove(sequence);
  by_use_.push_back(sequence);
}

CacheModel::SequencePtr CacheModel::Find(const std::string& id) const {
  for (const SequencePtr& sequence : by_use_) {
    if (sequence->id == id && !sequence->hidden) return sequence;
  }
  return nullptr;
}

CacheModel::Outcome CacheModel::Begin(Use& use) {
  for (Row& row : use.rows) {
    if (row.sequence->deleted) return Outcome::kNotFound;
  }
  for (Row& row : use.rows) {
    const auto length = static_cast<std::int64_t>(row.sequence->layers[use.layer].size());
    row.tail_begin = length / page_tokens_;
    row.tail.clear();
    if (row.sequence->written) return Outcome::kMustWait;
    if (row.appended.empty()) continue;
    if (row.sequence->readers > 0) return Outcome::kMustWait;
    const std::int64_t tail_end = PagesFor(length + static_cast<std::int64_t>(row.appended.size()));
    row.tail.resize(tail_end - row.tail_begin);
    for (const PagePtr& page : PresentTail(*row.sequence, row.tail_begin, tail_end)) {
      if (page->written) return Outcome::kMustWait;
    }
  }
  std::int64_t needed = 0;
  std::map<std::string, std::int64_t> needed_by_owner;
  for (const Row& row : use.rows) {
    needed += Needed(use, row);
    needed_by_owner[row.sequence->owner] += Needed(use, row);
  }
  if (needed > capacity_pages_) return Outcome::kFull;
  for (const auto& [owner, pages] : needed_by_owner) {
    if (pages > 0 && PaidBy(owner) + pages > max_pages_per_client_) return Outcome::kQuota;
  }
  SetBusy(use, true);
  const std::int64_t shortage = needed - (capacity_pages_ - num_used());
  if (shortage > 0 && (policy_ == EvictionPolicy::kNone || !Evict(use, shortage))) {
    SetBusy(use, false);
    return Outcome::kFull;
  }
  for (Row& row : use.rows) {
    const std::int64_t tail_end = row.tail_begin + static_cast<std::int64_t>(row.tail.size());
    const std::vector<PagePtr> present = PresentTail(*row.sequence, row.tail_begin, tail_end);
    for (std::size_t i = 0; i < row.tail.size(); ++i) {
      const bool in_place = i < present.size() && References(present[i], {}) == 1;
      row.tail[i] = in_place ? present[i] : NewPage(row.sequence->owner);
      if (in_place) row.tail[i]->written = true;
    }
  }
  return Outcome::kBegun;
}

void CacheModel::End(Use& use, bool commit) {
  SetBusy(use, false);
  for (Row& row : use.rows) {
    Sequence& sequence = *row.sequence;
    for (const PagePtr& page : row.tail) page->written = false;
    if (commit && !row.appended.empty()) {
      Tokens& tokens = sequence.layers[use.layer];
      tokens.insert(tokens.end(), row.appended.begin(), row.appended.end());
      sequence.table.resize(std::max(sequence.table.size(), row.tail_begin + row.tail.size()));
      std::copy(row.tail.begin(), row.tail.end(), sequence.table.begin() + row.tail_begin);
    }
    row.tail.clear();
    if (sequence.deleted && !sequence.IsBusy()) {
      sequence.table.clear();
      dropped_.erase(std::remove(dropped_.begin(), dropped_.end(), row.sequence), dropped_.end());
    }
  }
}

CacheModel::PagePtr CacheModel::NewPage(const std::string& payer) {
  auto page = std::make_shared<Page>();
  page->payer = payer;
  pages_.erase(std::remove_if(pages_.begin(), pages_.end(), [](const auto& old) { return old.expired(); }), pages_.end());
  pages_.push_back(page);
  return page;
}

std::vector<CacheModel::PagePtr> CacheModel::LivePages() const {
  std::vector<PagePtr> live;
  for (const std::weak_ptr<Page>& page : pages_) {
    if (PagePtr held = page.lock(); held != nullptr) live.push_back(std::move(held));
  }
  return live;
}

std::int64_t CacheModel::References(const PagePtr& page, const std::vector<SequencePtr>& without) const {
  const auto has = [&](const SequencePtr& sequence) { return !Contains(without, sequence) && Contains(sequence->table, page); };
  return std::count_if(by_use_.begin(), by_use_.end(), has) + std::count_if(dropped_.begin(), dropped_.end(), has);
}

std::int64_t CacheModel::PaidBy(const std::string& client) const {
  const std::vector<PagePtr> live = LivePages();
  return std::count_if(live.begin(), live.end(), [&](const PagePtr& page) { return page->payer == client; });
}

std::int64_t CacheModel::Needed(const Use& use, const Row& row) const {
  if (row.appended.empty()) return 0;
  const auto length = static_cast<std::int64_t>(row.sequence->layers[use.layer].size());
  const std::int64_t tail_end = PagesFor(length + static_cast<std::int64_t>(row.appended.size()));
  std::int64_t needed = tail_end - row.tail_begin;
  for (const PagePtr& page : PresentTail(*row.sequence, row.tail_begin, tail_end)) {
    if (References(page, {}) == 1) --needed;
  }
  return needed;
}

// The first so many idle sequences that make up for the shortage go, but for those that add nothing to it.
bool CacheModel::Evict(const Use& use, std::int64_t shortage) {
  std::vector<SequencePtr> victims;
  for (const SequencePtr& sequence : by_use_) {
    if (sequence->IsBusy() || sequence->hidden || sequence->table.empty()) continue;
    victims.push_back(sequence);
    if (Gain(use, victims) >= shortage) break;
  }
  if (Gain(use, victims) < shortage) return false;
  std::vector<SequencePtr> helpful;
  for (const SequencePtr& victim : victims) {
    const auto is_gain = [&](const PagePtr& page) { return IsGain(use, page, victims); };
    if (std::any_of(victim->table.begin(), victim->table.end(), is_gain)) helpful.push_back(victim);
  }
  for (const SequencePtr& victim : helpful) {
    victim->evicted = true;
    Delete(victim);
    ++num_evicted_;
  }
  return true;
}

bool CacheModel::IsGain(const Use& use, const PagePtr& page, const std::vector<SequencePtr>& victims) const {
  const std::int64_t left = References(page, victims);
  if (left == 0) return true;
  if (left > 1) return false;
  return std::any_of(use.rows.begin(), use.rows.end(), [&](const Row& row) {
    const std::int64_t tail_end = row.tail_begin + static_cast<std::int64_t>(row.tail.size());
    return Contains(PresentTail(*row.sequence, row.tail_begin, tail_end), page);
  });
}

std::int64_t CacheModel::Gain(const Use& use, const std::vector<SequencePtr>& victims) const {
  std::set<PagePtr> pages;
  for (const SequencePtr& victim : victims) pages.insert(victim->table.begin(), victim->table.end());
  return std::count_if(pages.begin(), pages.end(), [&](const PagePtr& page) { return IsGain(use, page, victims); });
}

}  // namespace ridgeline::engine::kv_cache
