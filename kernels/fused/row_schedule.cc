#include "kernels/fused/row_schedule.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/common/rounding.h"

namespace ridgeline::kernels::fused {
namespace {

constexpr int kWarpThreads = 32;
constexpr int kSmallBlockThreads = 128;  // of several rows
constexpr int kMostBlockThreads = 1024;
constexpr int kMostClusterBlocks = 8;  // that every device with clusters grants
constexpr std::int64_t kMostBlocks = 1 << 30;
// Shorter rows have enough blocks on each SM: while some wait for their statistic, others read.
constexpr std::int64_t kLeastStagedThreads = 544;

std::int64_t Blocks(std::int64_t threads, std::int64_t block_threads) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(CeilDivide(threads, block_threads))));
}

int BlockThreads(std::int64_t threads, std::int64_t blocks) {
  return static_cast<int>(std::min<std::int64_t>(RoundUp(CeilDivide(threads, blocks), kWarpThreads), kMostBlockThreads));
}

// Blocks that stay, a block an SM, and go from row to row. False if the row does not fit.
bool Stage(const RowProblem& problem, std::int64_t threads, const CudaLimits& limits, RowSchedule& schedule) {
  const bool has_copy_engine = limits.compute_capability >= 90;
  if (!has_copy_engine || !problem.is_words || threads < kLeastStagedThreads) return false;
  const std::int64_t thread_bytes = problem.num_inputs * kThreadElems * ElementBytes(problem.data_type);
  const std::int64_t most_threads = std::min<std::int64_t>(kMostBlockThreads, kMostStageBytes / thread_bytes);
  const std::int64_t blocks = Blocks(threads, most_threads);
  if (blocks > std::min(kMostClusterBlocks, limits.num_sms)) return false;
  schedule.cluster_blocks = static_cast<int>(blocks);
  schedule.threads = BlockThreads(threads, blocks);
  schedule.stage_bytes = static_cast<int>(schedule.threads * thread_bytes);
  schedule.num_blocks = static_cast<int>(std::min(problem.num_rows, limits.num_sms / blocks) * blocks);
  return true;
}

}  // namespace

RowSchedule ScheduleRows(const RowProblem& problem, const CudaLimits& limits) {
  const std::int64_t vector_elems = 16 / ElementBytes(problem.data_type);
  // A row that is not whole words may begin anywhere in its first one.
  const std::int64_t threads = CeilDivide(problem.row_elems + (problem.is_words ? 0 : vector_elems - 1), kThreadElems);

  RowSchedule schedule;
  if (threads <= kWarpThreads) {
    schedule.threads = static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(threads)));
    schedule.block_rows = kSmallBlockThreads / schedule.threads;
    schedule.num_blocks = static_cast<int>(std::min(CeilDivide(problem.num_rows, schedule.block_rows), kMostBlocks));
    return schedule;
  }
  if (Stage(problem, threads, limits, schedule)) return schedule;
  const bool has_clusters = limits.compute_capability >= 90;
  const std::int64_t blocks = has_clusters ? std::min<std::int64_t>(Blocks(threads, kMostBlockThreads), kMostClusterBlocks) : 1;
  schedule.cluster_blocks = static_cast<int>(blocks);
  schedule.threads = BlockThreads(threads, blocks);
  schedule.chunks = static_cast<int>(CeilDivide(threads, schedule.threads * blocks));
  schedule.num_blocks = static_cast<int>(std::min(problem.num_rows, kMostBlocks / blocks) * blocks);
  return schedule;
}

}  // namespace ridgeline::kernels::fused
