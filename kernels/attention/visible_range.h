// The mask as a range: windows and the causal limit leave each query one contiguous run of keys.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention/attention.h"

namespace ridgeline::kernels::attention {

// Positions are counted in Index: int64 for any sequence, int where its tokens are at most kMaxIntTokens and every instruction
// counts.
inline constexpr std::int64_t kMaxIntTokens = std::int64_t{1} << 29;

// Keys [begin, end) of one sequence; empty when begin == end.
template <typename Index>
struct BasicKeyRange {
  Index begin;
  Index end;

  constexpr Index size() const { return end - begin; }
};

// Maps a query's position to the keys that it sees. Masks align to the bottom right: the last query stands at the last key.
template <typename Index>
class BasicVisibleRange {
 public:
  using Range = BasicKeyRange<Index>;

  BasicVisibleRange() = default;
  constexpr BasicVisibleRange(const AttentionShape& shape, std::int64_t query_tokens, std::int64_t key_tokens)
      : offset_(static_cast<Index>(key_tokens - query_tokens)),
        key_tokens_(static_cast<Index>(key_tokens)),
        window_left_(Clip(shape.window_left)),
        window_right_(Clip(shape.window_right)) {}

  constexpr Range OfQuery(Index query_idx) const { return OfQueries(query_idx, query_idx + 1); }

  // Not clipped to the keys that exist; moves by one key a query.
  constexpr Range UnclippedOfQuery(Index query_idx) const {
    return {query_idx + offset_ - window_left_, query_idx + offset_ + window_right_ + 1};
  }

  // The union over queries [begin, end), which is contiguous because the range moves by one key a query. begin < end.
  constexpr Range OfQueries(Index begin, Index end) const {
    const Index first = std::clamp<Index>(UnclippedOfQuery(begin).begin, 0, key_tokens_);
    const Index last = std::clamp<Index>(UnclippedOfQuery(end - 1).end, 0, key_tokens_);
    return {first, std::max(first, last)};
  }

  // Keys that every query of [begin, end) sees: blocks inside it need no mask. begin < end.
  constexpr Range OfEveryQuery(Index begin, Index end) const {
    const Index first = OfQuery(end - 1).begin;
    return {first, std::max(first, OfQuery(begin).end)};
  }

  constexpr Index key_tokens() const { return key_tokens_; }

  // Key position that query_idx is aligned to; the distance in ALiBi counts from it.
  constexpr Index Position(Index query_idx) const { return query_idx + offset_; }

 private:
  // A window of 2^30 hides nothing of 2^29 tokens, and sums with it stay within 31 bits.
  static constexpr Index Clip(std::int64_t window) {
    return static_cast<Index>(sizeof(Index) < sizeof(window) ? std::min(window, 2 * kMaxIntTokens) : window);
  }

  Index offset_;
  Index key_tokens_;
  Index window_left_;
  Index window_right_;
};

using KeyRange = BasicKeyRange<std::int64_t>;
using VisibleRange = BasicVisibleRange<std::int64_t>;

}  // namespace ridgeline::kernels::attention
