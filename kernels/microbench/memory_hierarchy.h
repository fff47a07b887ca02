// Work that shows where data lies: streams over arrays of a chosen size, registers that are read again and again, and a chain
// of dependent loads.
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

// What a stream's reads may come from.
enum class ReadPath : std::uint8_t {
  kCaches,       // the nearest cache that has it
  kPastL1,       // CUDA: the L2 cache or memory
  kSharedMemory  // CUDA, and kRead alone: a block's shared memory, to which its slice is copied first
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
  ReadPath path = ReadPath::kCaches;
};

// CUDA: a block of kRegisterThreads threads a slot, each of which has `registers` numbers x and so often does, for all i in
// order,
//
//   x[i] = kRegisterFactor * x[(i + 1) % registers] + kRegisterAddend
//
// which reads three registers. In the beginning x[i] = i.
struct RegisterParams {
  int registers;  // one of kRegisterCounts
  std::int64_t passes;
  float* thread_sums;  // [num_slots * kRegisterThreads]: the sum of all x of a thread at the end
};

inline constexpr int kRegisterThreads = 1024;
inline constexpr int kRegisterCounts[] = {2, 4, 8, 16, 32};
inline constexpr float kRegisterFactor = 0.75f;
inline constexpr float kRegisterAddend = 1;
inline constexpr std::int64_t kRegisterBytes = 12;  // three registers

// Makes a chain: each node gets the address of the next.
struct LinkParams {
  const std::int64_t* next;  // [num_nodes]: the index of the next node
  void* nodes;               // [num_nodes, node_bytes]: an address in the first 8 bytes; the others stay as they are
  void** cursor;             // [1]: gets the address of the first node
  std::int64_t num_nodes;
  std::int64_t node_bytes;
};

// `steps` loads, each of whose address is what the load before gave. One thread. A chain goes on where the last one ended.
struct ChaseParams {
  void** cursor;  // [1]: the node to begin at, of a chain that LinkParams has made; then where it ended
  std::int64_t steps;
};

void RunOnCpu(const StreamParams& params, Executor& executor);
void RunOnCpu(const LinkParams& params, Executor& executor);
void RunOnCpu(const ChaseParams& params, Executor& executor);

}  // namespace ridgeline::kernels::microbench
