// Work that shows where data lies: streams over arrays of a chosen size, and a chain of dependent loads.
#pragma once

#include <cstdint>

#include "kernels/common/executor.h"

namespace ridgeline::kernels::microbench {

enum class StreamOperation : std::uint8_t {
  kRead,   // slice_sums[i] = the sum of slice i of a
  kWrite,  // destination[j] = scale
  kCopy,   // destination[j] = a[j]
  kTriad   // destination[j] = a[j] + scale * b[j]
};

// Several passes over the same arrays, each of which is cut into one slice a slot: where there are enough threads, a core keeps
// to its slice for all passes, and so to its own caches. Arrays that an operation does not name may be null.
struct StreamParams {
  StreamOperation operation;
  const float* a;      // [elements]
  const float* b;      // [elements]
  float* destination;  // [elements]
  float scale;
  std::int64_t elements;
  std::int64_t passes;
  float* slice_sums;  // [num_slots]; of the last pass
};

// `steps` loads, each of whose address is what the load before gave: next = nodes[kNodeElements * next]. One thread. A chain
// goes on where the last one ended.
struct ChaseParams {
  const std::int64_t* nodes;  // [num_nodes * kNodeElements]: the index of the next node, in a node's first element
  std::int64_t* cursor;       // [1]: the node to begin at; then where the chain ended
  std::int64_t steps;
};

inline constexpr std::int64_t kNodeElements = 8;  // a cache line of 64 bytes

void RunOnCpu(const StreamParams& params, Executor& executor);
void RunOnCpu(const ChaseParams& params, Executor& executor);

}  // namespace ridgeline::kernels::microbench
