#include <algorithm>
#include <cstdint>

#include "kernels/microbench/access_pattern.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/microbench/access_pattern_cpu.cc"  // this file, once for each SIMD target
#include "hwy/foreach_target.h"                                        // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::microbench::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void CopyVectors(const float* from, float* to, std::int64_t elements, std::int64_t passes) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    std::int64_t i = 0;
    for (; i + 4 * lanes <= elements; i += 4 * lanes) {
      const auto v0 = hn::LoadU(d, from + i);
      const auto v1 = hn::LoadU(d, from + i + lanes);
      const auto v2 = hn::LoadU(d, from + i + 2 * lanes);
      const auto v3 = hn::LoadU(d, from + i + 3 * lanes);
      hn::StoreU(v0, d, to + i);
      hn::StoreU(v1, d, to + i + lanes);
      hn::StoreU(v2, d, to + i + 2 * lanes);
      hn::StoreU(v3, d, to + i + 3 * lanes);
    }
    for (; i < elements; ++i) to[i] = from[i];
    asm volatile("" ::: "memory");  // one pass does not stand for all
  }
}

}  // namespace ridgeline::kernels::microbench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels::microbench {
namespace {

HWY_EXPORT(CopyVectors);

// Four sums: element by element, as a program reads one field of its structures.
float SumStrided(const float* from, std::int64_t count, std::int64_t stride) {
  float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4, from += 4 * stride) {
    s0 += from[0];
    s1 += from[stride];
    s2 += from[2 * stride];
    s3 += from[3 * stride];
  }
  for (; i < count; ++i, from += stride) s0 += *from;
  return (s0 + s1) + (s2 + s3);
}

constexpr std::int64_t kTile = 16;        // elements: a line of 64 bytes
constexpr std::int64_t kRowsOfTask = 64;  // whole tiles

void TransposeRows(const TransposeParams& p, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const float* const row = p.source + i * p.source_stride;
    for (std::int64_t j = 0; j < p.size; ++j) p.destination[j * p.destination_stride + i] = row[j];
  }
}

void TransposeTiles(const TransposeParams& p, std::int64_t begin, std::int64_t end) {
  for (std::int64_t tile_j = 0; tile_j < p.size; tile_j += kTile) {
    const std::int64_t end_j = std::min(tile_j + kTile, p.size);
    for (std::int64_t tile_i = begin; tile_i < end; tile_i += kTile) {
      const std::int64_t end_i = std::min(tile_i + kTile, end);
      for (std::int64_t j = tile_j; j < end_j; ++j) {
        for (std::int64_t i = tile_i; i < end_i; ++i) {
          p.destination[j * p.destination_stride + i] = p.source[i * p.source_stride + j];
        }
      }
    }
  }
}

}  // namespace

void RunOnCpu(const StridedParams& params, Executor& executor) {
  const int num_slices = executor.num_slots();
  executor.ParallelFor(num_slices, [&](std::int64_t slice, int /*slot*/) {
    const std::int64_t begin = params.count * slice / num_slices;
    const std::int64_t end = params.count * (slice + 1) / num_slices;
    params.slice_sums[slice] = SumStrided(params.source + begin * params.stride, end - begin, params.stride);
  });
}

void RunOnCpu(const VectorCopyParams& params, Executor& executor) {
  constexpr std::int64_t kLineElements = 16;  // slices keep the alignment that the caller chose
  const int num_slices = executor.num_slots();
  executor.ParallelFor(num_slices, [&](std::int64_t slice, int /*slot*/) {
    const std::int64_t begin = params.elements * slice / num_slices / kLineElements * kLineElements;
    const std::int64_t end =
        slice + 1 == num_slices ? params.elements : params.elements * (slice + 1) / num_slices / kLineElements * kLineElements;
    HWY_DYNAMIC_DISPATCH(CopyVectors)(params.source + begin, params.destination + begin, end - begin, params.passes);
  });
}

void RunOnCpu(const TransposeParams& params, Executor& executor) {
  executor.ParallelFor((params.size + kRowsOfTask - 1) / kRowsOfTask, [&](std::int64_t task, int /*slot*/) {
    const std::int64_t begin = task * kRowsOfTask;
    const std::int64_t end = std::min(begin + kRowsOfTask, params.size);
    params.method == TransposeMethod::kRows ? TransposeRows(params, begin, end) : TransposeTiles(params, begin, end);
  });
}

}  // namespace ridgeline::kernels::microbench
#endif  // HWY_ONCE
