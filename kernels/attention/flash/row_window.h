// Where the tokens lie that a streamed item reads next.
#pragma once

#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "kernels/attention/flash/schedule.h"
#include "kernels/attention/flash/token_rows.h"
#include "kernels/attention/visible_range.h"
#include "kernels/common/rounding.h"

namespace ridgeline::kernels::attention {

inline constexpr std::int64_t kStreamedTokens = 4;  // keys, and values, that are read side by side

// How far requests run ahead of the reading. The processor's own prefetcher follows several tokens badly that are read side by
// side, and stops at the end of a page.
inline constexpr std::int64_t kPrefetchDistanceBytes = 16 << 10;

inline constexpr std::int64_t kLineBytes = 64;

// The tokens of one step, and those behind it. Addresses are looked up once a step, so that products don't care whether keys
// lie in pages. Behind the last token that token is there again, which makes the last kStreamedTokens complete; nothing of the
// block table is read for it.
template <typename T>
class RowWindow {
 public:
  // Begins at the first step of `keys`. The item reads `num_heads` heads of `head_elems` elements of each token.
  RowWindow(const TokenRows<T>& rows, KeyRange keys, std::int64_t num_heads, std::int64_t head_elems)
      : rows_(rows),
        token_lines_(CeilDivide(num_heads * head_elems, kLineElems)),
        ahead_(std::min(CeilDivide(kPrefetchDistanceBytes, token_lines_ * kLineBytes), kStreamedKeys)),
        left_(keys) {
    Fill(at_);
    Fill(at_ + kStreamedKeys);
    BeginRequests();
  }

  // Rows of this step's tokens, [kStreamedKeys].
  const T* const* rows() const { return at_; }

  // Requests `lines` lines of the tokens ahead, in the order of memory, which the processor's prefetcher knows how to follow.
  // To be called in small steps between other work, for as many lines as are read: many requests at once would wait for each
  // other, and the work for all of them.
  void RequestAhead(std::int64_t lines) {
    while (lines > 0) {
      const std::int64_t count = std::min(lines, lines_left_);
      for (std::int64_t line = 0; line < count; ++line) hwy::Prefetch(next_ + line * kLineElems);
      next_ += count * kLineElems;
      lines_left_ -= count;
      lines -= count;
      if (lines_left_ == 0 && !RequestNextRow()) return;
    }
  }

  void Advance() {
    std::copy_n(at_ + kStreamedKeys, kStreamedKeys, at_);
    Fill(at_ + kStreamedKeys);
    BeginRequests();
  }

 private:
  static constexpr std::int64_t kLineElems = kLineBytes / sizeof(T);

  // Each step requests as many tokens as it reads.
  void BeginRequests() {
    next_row_ = ahead_;
    RequestNextRow();
  }
  bool RequestNextRow() {
    if (next_row_ == ahead_ + kStreamedKeys) return false;
    next_ = at_[next_row_++];
    lines_left_ = token_lines_;
    return true;
  }

  void Fill(const T** to) {
    const KeyRange step = {left_.begin, std::min(left_.begin + kStreamedKeys, left_.end)};
    rows_.ForEachRun(step, [&](const typename TokenRows<T>::Run& run, std::int64_t first) {
      for (std::int64_t k = 0; k < run.tokens; ++k) to[first + k] = run.first + k * rows_.stride_elems();
      last_ = to[first + run.tokens - 1];
    });
    std::fill(to + step.size(), to + kStreamedKeys, last_);
    left_.begin = step.end;
  }

  const TokenRows<T>& rows_;
  const std::int64_t token_lines_;
  const std::int64_t ahead_;  // tokens between what is read and what is requested
  const T* next_;             // line to request next
  std::int64_t lines_left_;   // of its row
  std::int64_t next_row_;     // of at_, behind it
  KeyRange left_;             // not yet in the window
  const T* last_ = nullptr;   // row of the last token that is
  const T* at_[2 * kStreamedKeys];
};

}  // namespace ridgeline::kernels::attention
