// Where a role is in a ring of buffers that it walks round and round.
#pragma once

#include <cstdint>

namespace ridgeline::kernels::microbench {

// A place in a ring of kLength, and the parity of the lap, which is what an mbarrier of that place is awaited with.
template <int kLength>
struct RingPlace {
  int idx = 0;
  std::uint32_t parity = 0;

  __device__ __forceinline__ void Advance() {
    if (++idx < kLength) return;
    idx = 0;
    parity ^= 1;
  }
};

}  // namespace ridgeline::kernels::microbench
