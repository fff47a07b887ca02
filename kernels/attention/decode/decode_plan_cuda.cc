#include "kernels/attention/decode/decode_plan_cuda.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

#include "kernels/attention/decode/decode_schedule.h"
#include "kernels/attention/decode/decode_shape.h"
#include "kernels/attention/visible_range.h"
#include "kernels/common/saturating.h"

namespace ridgeline::kernels::attention {
namespace {

// Where a multiprocessor has so many bytes to read, blocks walk all KV heads together: a page is then visited at once, which
// gains more than merging larger parts costs.
constexpr std::int64_t kLargeBytes = 16 << 20;
// All heads too where sequences alone keep this part of the blocks busy, for then hardly anything is to be merged.
constexpr double kBusyEnough = 0.75;
// With fewer sequences times KV heads, blocks walk single heads: parts to merge are smallest. Else two; of sequences of
// different lengths four, which make fewer and longer units: each that ends holds its block up.
constexpr std::int64_t kFewUnits = 64;
constexpr int kUsualHeads = 2, kManyHeads = 4;
// Up to so many bytes a multiprocessor, equal sequences are cut at their ends: to have nothing to merge, or less, is worth a
// few blocks that have nothing to do.
constexpr std::int64_t kAlignedBytes = 4 << 20;

// Of the L2 cache, where keys and values may stay; and what of more than that is to stay beside what passes by. Measured; each
// half of the cache may hold a line.
constexpr double kFittingPart = 2. / 3, kKeptPart = 1. / 4;

std::int64_t MostQueryTokens(const AttentionShape& shape, const Sequence* sequences) {
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < shape.num_sequences; ++i) most = std::max(most, sequences[i].query_tokens);
  return most;
}

std::int64_t MostRows(const AttentionShape& shape, const Sequence* sequences) {
  return SaturatingMultiply({MostQueryTokens(shape, sequences), shape.GroupHeads()});
}

// Warps of a block: as many as find room for their rings, a power of two; 0 if not even two do.
int ChooseWarps(int head_dim, int rows, const CudaLimits& limits) {
  int warps = head_dim > 128 ? kMostDecodeWarps / 2 : kMostDecodeWarps;
  while (warps > 1 && DecodeSharedBytes(head_dim, warps, rows) > limits.shared_memory_bytes_per_block) warps /= 2;
  return warps > 1 ? warps : 0;
}

// The exponent of a power of two.
int Log2(int power) { return std::countr_zero(static_cast<unsigned>(power)); }

int ChooseMostHeads(const AttentionShape& shape, int head_dim, int num_warps, int rows) {
  int heads = 1;
  while (2 * heads <= num_warps && shape.kv_heads % (2 * heads) == 0 && 2 * heads * rows * head_dim <= kMostPartFloats) {
    heads *= 2;
  }
  return heads;
}

DecodeSchedule::Heads Divide(const AttentionShape& shape, int heads, int num_blocks) {
  const std::int64_t groups = shape.kv_heads / heads;
  return {.heads_log2 = Log2(heads),
          .head_groups = static_cast<int>(groups),
          .blocks_per_group = static_cast<int>(num_blocks / std::max<std::int64_t>(shape.num_sequences * groups, 1))};
}

void DivideHeads(const AttentionShape& shape, int most_heads, DecodeSchedule& schedule) {
  const auto divide = [&](int heads) { return Divide(shape, std::min(heads, most_heads), schedule.num_blocks); };
  schedule.large = divide(most_heads);
  const bool are_many = static_cast<double>(shape.num_sequences) >= kBusyEnough * schedule.num_blocks;
  schedule.uneven = divide(are_many ? most_heads : kManyHeads);
  const bool are_few = shape.num_sequences * shape.kv_heads < kFewUnits;
  schedule.apart = divide(are_many ? most_heads : are_few ? 1 : kUsualHeads);
}

// Whether some row may not see some key before its sequence's end. A single query stands at the last key, which no causal limit
// hides.
bool HidesKeys(const AttentionShape& shape, std::int64_t query_tokens) {
  return shape.window_left < kMaxIntTokens || (query_tokens > 1 && shape.window_right < kMaxIntTokens);
}

// Bytes that a block leaves for others: two parts.
std::int64_t PartBytes(std::int64_t part_rows, int head_dim) {
  return 2 * part_rows * DecodePartPitch(head_dim) * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

std::string WhyNotDecode(const AttentionShape& shape, const Sequence* sequences, const CudaLimits& limits) {
  if (shape.data_type == DataType::kFloat32) return "decode takes 16-bit types";
  const std::int64_t rows = MostRows(shape, sequences);
  if (rows > kMostDecodeRows) {
    return std::to_string(rows) + " packed rows of a KV head; decode takes " + std::to_string(kMostDecodeRows);
  }
  if (rows == 0) return "no query tokens";
  if (ChooseWarps(DecodeHeadDim(shape), static_cast<int>(rows), limits) == 0) return "too little shared memory";
  const std::int64_t columns = std::max(shape.head_dim, shape.value_head_dim);
  constexpr std::int64_t kMostInt = std::numeric_limits<std::int32_t>::max();
  if (SaturatingMultiply({shape.page_tokens, shape.kv_heads, columns, 2}) > kMostInt) return "a page of 2 GiB or more";
  if (SaturatingMultiply({shape.num_sequences, shape.query_heads}) > kMostInt) return "too many sequences times heads";
  return "";
}

void PlanDecodeOnCuda(const AttentionShape& shape, const Sequence* sequences, const CudaLimits& limits, AttentionPlan& plan) {
  const std::int64_t query_tokens = MostQueryTokens(shape, sequences);
  DecodeSchedule& schedule = plan.decode;
  schedule.head_dim = DecodeHeadDim(shape);
  schedule.rows = static_cast<int>(MostRows(shape, sequences));
  schedule.num_blocks = limits.num_sms;
  const int num_warps = ChooseWarps(schedule.head_dim, schedule.rows, limits);
  schedule.warps_log2 = Log2(num_warps);
  const int most_heads = ChooseMostHeads(shape, schedule.head_dim, num_warps, schedule.rows);
  DivideHeads(shape, most_heads, schedule);
  schedule.hides_keys = HidesKeys(shape, query_tokens);
  schedule.group_heads = FastDivision(static_cast<std::uint32_t>(shape.GroupHeads()));
  schedule.page_tokens = FastDivision(static_cast<std::uint32_t>(shape.IsPaged() ? shape.page_tokens : kDecodeTileKeys));
  // Of all KV heads.
  const std::int64_t tile_bytes = kDecodeTileKeys * shape.kv_heads * (shape.head_dim + shape.value_head_dim) * 2;
  schedule.fitting_tiles = static_cast<std::int64_t>(kFittingPart * static_cast<double>(limits.l2_cache_bytes)) / tile_bytes;
  schedule.kept_tiles = static_cast<std::int64_t>(kKeptPart * static_cast<double>(limits.l2_cache_bytes)) / tile_bytes;
  schedule.large_tiles = schedule.num_blocks * kLargeBytes / tile_bytes;
  schedule.aligned_tiles = schedule.num_blocks * kAlignedBytes / tile_bytes;
  plan.query_block = schedule.rows;
  plan.key_block = kDecodeTileKeys;
  plan.merge_workspace_bytes = limits.num_sms * PartBytes(std::int64_t{most_heads} * schedule.rows, schedule.head_dim);
  char name[64];
  std::snprintf(name, sizeof(name), "decode_cuda[d=%d,heads=%d,rows=%d]", schedule.head_dim, most_heads, schedule.rows);
  plan.kernel = name;
}

std::int64_t MostMergeWorkspaceBytes(const CudaLimits& limits) {
  std::int64_t most = 0;
  for (const int head_dim : kDecodeHeadDims) most = std::max(most, PartBytes(kMostPartFloats / head_dim, head_dim));
  return limits.num_sms * most;
}

}  // namespace ridgeline::kernels::attention
