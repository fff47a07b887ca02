// Asks for memory before it is read.
#pragma once

#include <cstdint>

#include "hwy/cache_control.h"
#include "kernels/attention/flash/token_rows.h"
#include "kernels/attention/visible_range.h"

namespace ridgeline::kernels::attention {

// Walks tokens in small steps between other work: many requests at once would wait for each other, and the work for all of
// them.
template <typename T>
class PrefetchCursor {
 public:
  // The first `piece_elems` elements of each token of `keys`.
  PrefetchCursor(const TokenRows<T>& rows, KeyRange keys, std::int64_t piece_elems)
      : rows_(rows),
        stride_bytes_(rows.stride_elems() * std::int64_t{sizeof(T)}),
        piece_bytes_(piece_elems * std::int64_t{sizeof(T)}),
        keys_(keys) {
    StartRun();
  }

  // Requests the lines of the next `bytes` bytes, as far as there are any.
  void Advance(std::int64_t bytes) {
    for (; bytes > 0 && run_tokens_ > 0; bytes -= kLineBytes) {
      hwy::Prefetch(piece_ + offset_bytes_);
      offset_bytes_ += kLineBytes;
      if (offset_bytes_ < piece_bytes_) continue;
      offset_bytes_ = 0;
      piece_ += stride_bytes_;
      if (--run_tokens_ == 0) StartRun();
    }
  }

 private:
  static constexpr std::int64_t kLineBytes = 64;

  // Behind the last token there is no run: nothing of the block table may be read.
  void StartRun() {
    if (keys_.size() <= 0) return;
    const typename TokenRows<T>::Run run = rows_.RunAt(keys_);
    piece_ = reinterpret_cast<const char*>(run.first);
    run_tokens_ = run.tokens;
    keys_.begin += run.tokens;
  }

  const TokenRows<T>& rows_;
  std::int64_t stride_bytes_;
  std::int64_t piece_bytes_;
  KeyRange keys_;  // behind the current run
  const char* piece_ = nullptr;
  std::int64_t run_tokens_ = 0;    // left, with the current one
  std::int64_t offset_bytes_ = 0;  // in the piece
};

}  // namespace ridgeline::kernels::attention
