// Uses of a cache's sequences: how they begin and end.
//
//   table of the sequence          head                      tail of an append
//   ┌────┬────┬────┬────┐          ┌────┬────┬────┐          ┌────┬────┬────┐
//   │ 7  │ 3  │ 12 │ 5  │          │ 7  │ 3  │ 12 │          │ 9  │ 20 │ 21 │   9: a copy of 5, which is shared, else 5 itself
//   └────┴────┴────┴────┘          └────┴────┴────┘          └────┴────┴────┘   20, 21: new
//                                  in the sequence's own      in the use, until it commits
//
// What a use costs is in proportion to its rows and its tails, not to the tables.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "kernels/common/saturating.h"
#include "server/base/status_macros.h"
#include "server/engine/kv_cache/errors.h"
#include "server/engine/kv_cache/eviction.h"
#include "server/engine/kv_cache/kv_cache.h"

namespace ridgeline::engine::kv_cache {
namespace {

using Member = SequenceUse::Member;

std::int64_t TableSize(const Member& member) { return static_cast<std::int64_t>(member.sequence->table.size()); }

// The part of the tail that the sequence's table has already.
absl::Span<const std::int32_t> PresentTail(const Member& member) {
  const std::int64_t end = std::min(member.tail_end, TableSize(member));
  return absl::MakeConstSpan(member.sequence->table).subspan(member.tail_begin, end - member.tail_begin);
}

// The sequence cannot be deleted, truncated, evicted or, if written, used by others.
void SetBusy(absl::Span<const Member> members, bool busy) {
  for (const Member& member : members) {
    if (member.IsRead()) {
      member.sequence->num_readers += busy ? 1 : -1;
    } else {
      member.sequence->is_written = busy;
    }
  }
}

}  // namespace

absl::StatusOr<bool> KvCache::Begin(SequenceUse& use, absl::Span<const std::int64_t> append_tokens,
                                    std::int64_t max_pages_per_client) {
  RIDGELINE_RETURN_IF_ERROR(CheckPresent(use.members_));
  LayOut(use, append_tokens);
  if (std::any_of(use.members_.begin(), use.members_.end(), [this](const Member& member) { return MustWait(member); })) {
    return false;
  }
  std::int64_t needed_pages = 0;
  for (const Member& member : use.members_) needed_pages = kernels::SaturatingAdd(needed_pages, NeededPages(member));
  if (needed_pages > pool_.num_pages()) return Full(needed_pages);
  RIDGELINE_RETURN_IF_ERROR(CheckQuotas(use.members_, max_pages_per_client));
  SetBusy(use.members_, true);  // first, so that no member is evicted for another
  if (absl::Status status = MakeRoom(use.members_, needed_pages); !status.ok()) {
    SetBusy(use.members_, false);
    return status;
  }
  TakePages(use);
  return true;
}

absl::Status KvCache::CheckPresent(absl::Span<const Member> members) const {
  for (const Member& member : members) {
    const Sequence& sequence = *member.sequence;
    if (sequence.state == Sequence::State::kDeleted) return SequenceNotFound(identity_.id, sequence.id);
    if (sequence.state == Sequence::State::kEvicted) return SequenceEvicted(identity_.id, sequence.id);
  }
  return absl::OkStatus();
}

void KvCache::LayOut(SequenceUse& use, absl::Span<const std::int64_t> append_tokens) const {
  for (std::size_t row = 0; row < use.members_.size(); ++row) {
    Member& member = use.members_[row];
    UsedSequence& used = use.used_[row];
    const std::int64_t appended = append_tokens.empty() ? 0 : append_tokens[row];
    used.begin_tokens = member.sequence->lengths[use.layer_];
    used.end_tokens = kernels::SaturatingAdd(used.begin_tokens, appended);
    member.tail_end = geometry_.PagesFor(used.end_tokens);
    member.tail_begin = appended == 0 ? member.tail_end : used.begin_tokens / geometry_.page_tokens;
  }
}

// Whether other work is in the way.
bool KvCache::MustWait(const Member& member) const {
  const Sequence& sequence = *member.sequence;
  if (sequence.is_written) return true;
  if (member.IsRead()) return false;
  if (sequence.num_readers > 0) return true;
  // A page cannot be copied while another sequence, which was forked meanwhile, appends to it.
  const absl::Span<const std::int32_t> tail = PresentTail(member);
  return std::any_of(tail.begin(), tail.end(), [this](std::int32_t page) { return pool_.IsWritten(page); });
}

// Pages to take from the pool: new ones, and copies of shared ones.
std::int64_t KvCache::NeededPages(const Member& member) const {
  const absl::Span<const std::int32_t> tail = PresentTail(member);
  const std::int64_t copied =
      std::count_if(tail.begin(), tail.end(), [this](std::int32_t page) { return pool_.references(page) > 1; });
  return member.tail_end - member.tail_begin - static_cast<std::int64_t>(tail.size()) + copied;
}

absl::Status KvCache::CheckQuotas(absl::Span<const Member> members, std::int64_t max_pages_per_client) const {
  // The accounts do the sums: members may have several owners.
  for (const Member& member : members) member.sequence->owner->planned_pages = 0;
  for (const Member& member : members) {
    ClientAccount& owner = *member.sequence->owner;
    owner.planned_pages = kernels::SaturatingAdd(owner.planned_pages, NeededPages(member));
    if (owner.planned_pages > max_pages_per_client - owner.pages) {
      return QuotaExceeded("the client that made the sequence", "pages", owner.pages, owner.planned_pages,
                           max_pages_per_client);
    }
  }
  return absl::OkStatus();
}

absl::Status KvCache::Full(std::int64_t needed_pages) const {
  return CacheFull(identity_.id, identity_.eviction_policy, needed_pages, pool_.num_free(), pool_.num_pages());
}

absl::Status KvCache::MakeRoom(absl::Span<const Member> members, std::int64_t needed_pages) {
  const std::int64_t shortage = needed_pages - pool_.num_free();
  if (shortage <= 0) return absl::OkStatus();
  if (identity_.eviction_policy == EvictionPolicy::kNone) return Full(needed_pages);

  absl::flat_hash_set<std::int32_t> shared_pages;
  for (const Member& member : members) {
    for (const std::int32_t page : PresentTail(member)) {
      if (pool_.references(page) > 1) shared_pages.insert(page);
    }
  }
  const auto victims = ChooseVictims(by_use_, pool_, shared_pages, shortage);
  if (!victims.has_value()) return Full(needed_pages);
  for (Sequence* const victim : *victims) Remove(*victim, Sequence::State::kEvicted);
  return absl::OkStatus();
}

void KvCache::TakePages(SequenceUse& use) {
  for (const Member& member : use.members_) {
    const absl::Span<const std::int32_t> present = PresentTail(member);
    for (const std::int32_t page : present) {
      if (pool_.references(page) > 1) {
        use.tail_pages_.push_back(pool_.Take(member.sequence->owner));
        use.copies_.push_back({.source = page, .destination = use.tail_pages_.back()});
      } else {
        pool_.SetWritten(page, true);
        use.tail_pages_.push_back(page);
      }
    }
    const std::int64_t size = member.tail_end - member.tail_begin;
    for (auto i = static_cast<std::int64_t>(present.size()); i < size; ++i) {
      use.tail_pages_.push_back(pool_.Take(member.sequence->owner));
    }
  }
  std::int64_t tail_offset = 0;
  for (std::size_t row = 0; row < use.members_.size(); ++row) {
    const Member& member = use.members_[row];
    const std::int64_t tail_size = member.tail_end - member.tail_begin;
    use.used_[row].table_head = absl::MakeConstSpan(member.sequence->table).first(member.tail_begin);
    use.used_[row].table_tail = absl::MakeConstSpan(use.tail_pages_).subspan(tail_offset, tail_size);
    tail_offset += tail_size;
  }
}

void KvCache::End(SequenceUse& use, bool commit) {
  SetBusy(use.members_, false);
  for (std::size_t row = 0; row < use.members_.size(); ++row) {
    Sequence& sequence = *use.members_[row].sequence;
    EndTail(use.members_[row], use.used_[row].table_tail, commit);
    if (commit) sequence.lengths[use.layer_] = use.used_[row].end_tokens;  // of a reader: as it was
    // Its transfer was dropped meanwhile.
    if (sequence.IsGone() && !sequence.IsBusy()) ReleaseTable(sequence);
  }
}

void KvCache::EndTail(const Member& member, absl::Span<const std::int32_t> tail, bool commit) {
  std::vector<std::int32_t>& table = member.sequence->table;
  const auto present = static_cast<std::int64_t>(PresentTail(member).size());
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(tail.size()); ++i) {
    if (i >= present && commit) {
      table.push_back(tail[i]);
    } else if (i >= present) {
      ReleasePage(tail[i]);
    } else if (std::int32_t& entry = table[member.tail_begin + i]; entry == tail[i]) {
      pool_.SetWritten(entry, false);
    } else {
      num_copied_ += commit ? 1 : 0;
      ReleasePage(commit ? std::exchange(entry, tail[i]) : tail[i]);
    }
  }
}

}  // namespace ridgeline::engine::kv_cache
