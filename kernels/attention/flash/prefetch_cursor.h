// Asks for memory before it is read.
#pragma once

#include <cstdint>

#include "hwy/cache_control.h"

namespace ridgeline::kernels::attention {

// Walks pieces of memory that lie a stride apart, in small steps between other work: many requests at once would wait for each
// other, and the work for all of them.
class PrefetchCursor {
 public:
  PrefetchCursor(const void* first, std::int64_t stride_bytes, std::int64_t piece_bytes, std::int64_t num_pieces)
      : piece_(static_cast<const char*>(first)),
        stride_bytes_(stride_bytes),
        piece_bytes_(piece_bytes),
        pieces_left_(num_pieces) {}

  // Requests the lines of the next `bytes` bytes, as far as there are any.
  void Advance(std::int64_t bytes) {
    for (; bytes > 0 && pieces_left_ > 0; bytes -= kLineBytes) {
      hwy::Prefetch(piece_ + offset_bytes_);
      offset_bytes_ += kLineBytes;
      if (offset_bytes_ < piece_bytes_) continue;
      offset_bytes_ = 0;
      piece_ += stride_bytes_;
      --pieces_left_;
    }
  }

 private:
  static constexpr std::int64_t kLineBytes = 64;

  const char* piece_;
  std::int64_t stride_bytes_;
  std::int64_t piece_bytes_;
  std::int64_t pieces_left_;
  std::int64_t offset_bytes_ = 0;  // in the piece
};

}  // namespace ridgeline::kernels::attention
