#include <algorithm>
#include <cstdint>

#include "kernels/microbench/memory_hierarchy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/microbench/memory_hierarchy_cpu.cc"  // this file, once for each SIMD target
#include "hwy/foreach_target.h"                                          // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::microbench::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Lanes = hn::ScalableTag<float>;

// The compiler must believe that memory has changed: otherwise one pass would do for all.
HWY_INLINE void ForgetMemory() { asm volatile("" ::: "memory"); }

// Eight sums, so that the latency of an addition hides behind the others.
float Sum(const float* from, std::int64_t elements) {
  const Lanes d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  std::int64_t i = 0;
  for (; i + 8 * lanes <= elements; i += 8 * lanes) {
    const float* const p = from + i;
    s0 = hn::Add(s0, hn::LoadU(d, p));
    s1 = hn::Add(s1, hn::LoadU(d, p + lanes));
    s2 = hn::Add(s2, hn::LoadU(d, p + 2 * lanes));
    s3 = hn::Add(s3, hn::LoadU(d, p + 3 * lanes));
    s4 = hn::Add(s4, hn::LoadU(d, p + 4 * lanes));
    s5 = hn::Add(s5, hn::LoadU(d, p + 5 * lanes));
    s6 = hn::Add(s6, hn::LoadU(d, p + 6 * lanes));
    s7 = hn::Add(s7, hn::LoadU(d, p + 7 * lanes));
  }
  const auto sum = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)));
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < elements; ++i) total += from[i];
  return total;
}

template <typename Element>
HWY_INLINE void Store(float* to, std::int64_t elements, Element element) {
  const Lanes d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + 4 * lanes <= elements; i += 4 * lanes) {
    for (std::int64_t v = 0; v < 4; ++v) hn::StoreU(element(d, i + v * lanes), d, to + i + v * lanes);
  }
  const hn::CappedTag<float, 1> one;
  for (; i < elements; ++i) hn::StoreU(element(one, i), one, to + i);
}

}  // namespace

void StreamSlice(const StreamParams& params, std::int64_t begin, std::int64_t elements, int slice) {
  const float* const a = params.a == nullptr ? nullptr : params.a + begin;
  const float* const b = params.b == nullptr ? nullptr : params.b + begin;
  float* const to = params.destination == nullptr ? nullptr : params.destination + begin;
  for (std::int64_t pass = 0; pass < params.passes; ++pass) {
    switch (params.operation) {
      case StreamOperation::kRead:
        params.slice_sums[slice] = Sum(a, elements);
        break;
      case StreamOperation::kWrite:
        Store(to, elements, [&](auto d, std::int64_t) { return hn::Set(d, params.scale); });
        break;
      case StreamOperation::kCopy:
        Store(to, elements, [&](auto d, std::int64_t i) { return hn::LoadU(d, a + i); });
        break;
      case StreamOperation::kTriad:
        Store(to, elements, [&](auto d, std::int64_t i) {
          return hn::MulAdd(hn::Set(d, params.scale), hn::LoadU(d, b + i), hn::LoadU(d, a + i));
        });
        break;
    }
    ForgetMemory();
  }
}

}  // namespace ridgeline::kernels::microbench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels::microbench {

HWY_EXPORT(StreamSlice);

void RunOnCpu(const StreamParams& params, Executor& executor) {
  const int num_slices = executor.num_slots();
  executor.ParallelFor(num_slices, [&](std::int64_t slice, int /*slot*/) {
    const std::int64_t begin = params.elements * slice / num_slices;
    const std::int64_t end = params.elements * (slice + 1) / num_slices;
    HWY_DYNAMIC_DISPATCH(StreamSlice)(params, begin, end - begin, static_cast<int>(slice));
  });
}

void RunOnCpu(const LinkParams& params, Executor& /*executor*/) {
  auto* const nodes = static_cast<char*>(params.nodes);
  for (std::int64_t node = 0; node < params.num_nodes; ++node) {
    *reinterpret_cast<void**>(nodes + node * params.node_bytes) = nodes + params.next[node] * params.node_bytes;
  }
  *params.cursor = nodes;
}

void RunOnCpu(const ChaseParams& params, Executor& /*executor*/) {
  void* node = *params.cursor;
  for (std::int64_t step = 0; step < params.steps; ++step) node = *static_cast<void* const*>(node);
  *params.cursor = node;
}

}  // namespace ridgeline::kernels::microbench
#endif  // HWY_ONCE
