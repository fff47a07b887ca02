// The floor under everything that memory bounds: a read of every byte, and as little else as can be.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/common/executor.h"

namespace ridgeline::bench {

// Reads pieces of `piece_bytes` bytes, a multiple of 8, each once: piece `order[i]` of `memory` as the i-th, and each slot a
// stretch of the order. Returns the sum of all as 64-bit words, so that no read can be left out.
std::uint64_t PlainRead(const void* memory, std::int64_t piece_bytes, std::span<const std::int32_t> order,
                        kernels::Executor& executor);

}  // namespace ridgeline::bench
