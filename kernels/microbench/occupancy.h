// Work that waits: for memory, or for its own last result. What hides the waiting is other warps on the same multiprocessor.
#pragma once

#include <cstdint>

namespace ridgeline::kernels::microbench {

// What keeps more warps from being resident on a multiprocessor.
enum class OccupancyLimit : std::uint8_t {
  kSharedMemory,  // blocks ask for so much that no more fit
  kRegisters,     // threads hold values that they don't need until the end
  kGrid,          // kWaveWarps are resident, and the grid has `warps` for each multiprocessor: the last wave may not be full
};

enum class OccupancyWork : std::uint8_t {
  kLoads,         // 16 bytes a thread; the next address is known when the last loads have arrived
  kMultiplyAdds,  // chains of x = x * kOccupancyFactor + kOccupancyAddend
};

inline constexpr int kWaveWarps = 16;
inline constexpr int kMostResidentWarps = 64;
inline constexpr int kMostResidentBlocks = 32;
inline constexpr int kRegisterBlockWarps = 4;  // of blocks that registers limit

// Of a block, so that `warps` warps are whole blocks, no more than kMostResidentBlocks of them; 0: there is none.
constexpr int OccupancyBlockWarps(OccupancyLimit limit, int warps) {
  if (limit == OccupancyLimit::kGrid) return 1;
  if (limit == OccupancyLimit::kRegisters) return warps % kRegisterBlockWarps == 0 ? kRegisterBlockWarps : 0;
  for (int block = 1; block <= 32; ++block) {
    if (warps % block == 0 && warps / block <= kMostResidentBlocks) return block;
  }
  return 0;
}

// By registers: what the kernels were compiled for.
inline constexpr int kRegisterWarps[] = {8, 16, 32, 64};

inline constexpr float kOccupancyFactor = 1 - 0x1p-10f;
inline constexpr float kOccupancyAddend = 0x1p-12f;

// Slots of the counters: identifiers of multiprocessors are below this on every device that there is.
inline constexpr int kMostMultiprocessors = 1024;

struct OccupancyParams {
  OccupancyWork work;
  OccupancyLimit limit;
  int warps;               // to be resident on each multiprocessor; kGrid: of the grid for each multiprocessor
  int independent;         // 1 or 4: loads, or chains, of a thread that don't wait for each other
  std::int64_t num_warps;  // of the grid
  std::int64_t steps;      // of a thread: loads, or multiply-adds; a multiple of `independent`
  const float* source;     // [num_warps, steps, 32, 4]; kLoads, else null
  float* sums;             // [num_warps, 32]: of what the thread has loaded, or of its chains' ends; chain c begins with c + 1
  std::int32_t* resident;  // [2, kMostMultiprocessors], zero before the first launch: warps on it now, and at most
};

}  // namespace ridgeline::kernels::microbench
