// The choice of kernel and configuration: a pure function of the problem and the device, printable and tested.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kernels/attention/attention.h"
#include "kernels/attention/decode/decode_schedule.h"
#include "kernels/attention/flash/tile_schedule.h"
#include "kernels/attention/prefill_sm90/prefill_schedule.h"

namespace ridgeline::kernels::attention {

// What a plan needs to know of a CPU.
struct CpuLimits {
  int num_slots = 1;                       // Executor::num_slots()
  std::int64_t l1_cache_bytes = 32 << 10;  // data cache of one core
  std::int64_t l2_cache_bytes = 1 << 20;   // of one core
};

// What a plan needs to know of a CUDA device.
struct CudaLimits {
  int compute_capability = 80;  // major * 10 + minor
  int num_sms = 1;
  std::int64_t shared_memory_bytes_per_sm = 164 << 10;
  std::int64_t shared_memory_bytes_per_block = 163 << 10;  // dynamic, when asked for
  std::int64_t l2_cache_bytes = 40 << 20;
};

struct CascadePlan;

struct AttentionPlan {
  Algorithm algorithm;
  std::string kernel;            // name with its configuration, e.g. "flash_cpu[bq=64,bk=256,splits=1]"
  std::string reason;            // why this one, in a clause that fits "chosen because ..."
  std::int64_t query_block = 0;  // queries (packed rows of a GQA group, where they are few) of one task; flash only
  std::int64_t key_block = 0;    // keys of one step of the online softmax; flash only
  std::int64_t key_splits = 1;   // parts of the key range computed apart and merged by log-sum-exp; flash only
  std::int64_t workspace_bytes = 0;

  // On CUDA devices; flash only.
  TileSchedule tiles;
  TileSchedule merge_tiles;       // of the merge, if the keys are split
  std::int64_t partial_rows = 0;  // of one split: query tokens * Hq

  // On CUDA devices, for few queries: flash by the decode kernel if decode.num_blocks > 0.
  DecodeSchedule decode;
  // On Hopper chips, for many queries: flash by the prefill kernel if prefill.num_tiles > 0.
  PrefillSchedule prefill;

  // Of two passes, where sequences begin with the same pages; see cascade/cascade.h.
  std::shared_ptr<const CascadePlan> cascade;

  std::int64_t merge_workspace_bytes = 0;  // of AttentionParams::merge_workspace
};

// `requested` unset: the planner chooses. `sequences` is host memory, [shape.num_sequences]. The caller has checked the shape;
// sizes that overflow saturate workspace_bytes at INT64_MAX, which no allocator grants.
AttentionPlan PlanOnCpu(const AttentionShape& shape, const Sequence* sequences, std::optional<Algorithm> requested,
                        const CpuLimits& limits);
AttentionPlan PlanOnCuda(const AttentionShape& shape, const Sequence* sequences, std::optional<Algorithm> requested,
                         const CudaLimits& limits);

// Empty if the CUDA kernels can compute the problem, else why not, e.g. "sequence 3 has 600000000 key tokens; ...".
std::string WhyNotOnCuda(const AttentionShape& shape, const Sequence* sequences);

}  // namespace ridgeline::kernels::attention
