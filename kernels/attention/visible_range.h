// The mask as a range: windows and the causal limit leave each query one contiguous run of keys.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention/attention.h"

namespace ridgeline::kernels::attention {

// Keys [begin, end) of one sequence; empty when begin == end.
struct KeyRange {
  std::int64_t begin;
  std::int64_t end;

  constexpr std::int64_t size() const { return end - begin; }
};

// Maps a query's position to the keys that it sees. Masks align to the bottom right: the last query stands at the last key.
class VisibleRange {
 public:
  VisibleRange() = default;
  constexpr VisibleRange(const AttentionShape& shape, std::int64_t query_tokens, std::int64_t key_tokens)
      : offset_(key_tokens - query_tokens),
        key_tokens_(key_tokens),
        window_left_(shape.window_left),
        window_right_(shape.window_right) {}

  constexpr KeyRange OfQuery(std::int64_t query_idx) const { return OfQueries(query_idx, query_idx + 1); }

  // Not clipped to the keys that exist; moves by one key a query.
  constexpr KeyRange UnclippedOfQuery(std::int64_t query_idx) const {
    return {query_idx + offset_ - window_left_, query_idx + offset_ + window_right_ + 1};
  }

  // The union over queries [begin, end), which is contiguous because the range moves by one key a query. begin < end.
  constexpr KeyRange OfQueries(std::int64_t begin, std::int64_t end) const {
    const std::int64_t first = std::clamp<std::int64_t>(begin + offset_ - window_left_, 0, key_tokens_);
    const std::int64_t last = std::clamp<std::int64_t>(end - 1 + offset_ + window_right_ + 1, 0, key_tokens_);
    return {first, std::max(first, last)};
  }

  // Keys that every query of [begin, end) sees: blocks inside it need no mask. begin < end.
  constexpr KeyRange OfEveryQuery(std::int64_t begin, std::int64_t end) const {
    const std::int64_t first = OfQuery(end - 1).begin;
    return {first, std::max(first, OfQuery(begin).end)};
  }

  constexpr std::int64_t key_tokens() const { return key_tokens_; }

  // Key position that query_idx is aligned to; the distance in ALiBi counts from it.
  constexpr std::int64_t Position(std::int64_t query_idx) const { return query_idx + offset_; }

 private:
  std::int64_t offset_;
  std::int64_t key_tokens_;
  std::int64_t window_left_;
  std::int64_t window_right_;
};

}  // namespace ridgeline::kernels::attention
