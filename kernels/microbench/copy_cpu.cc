#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/microbench/microbench.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/microbench/copy_cpu.cc"  // this file, once for each SIMD target
#include "hwy/foreach_target.h"                              // must come before highway.h

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::microbench::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Stores past the caches: lines of the destination are not read first, and what the caches hold stays.
void StreamingCopy(std::uint8_t* destination, const std::uint8_t* source, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(destination) % lanes;
  std::size_t i = std::min(bytes, (lanes - misaligned) % lanes);
  std::memcpy(destination, source, i);
  for (; i + lanes <= bytes; i += lanes) hn::Stream(hn::LoadU(d, source + i), d, destination + i);
  std::memcpy(destination + i, source + i, bytes - i);
  hwy::FlushStream();
}

}  // namespace ridgeline::kernels::microbench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels::microbench {
namespace {

HWY_EXPORT(StreamingCopy);

constexpr std::int64_t kTaskBytes = 256 << 10;

// From here on the copy outgrows the caches. Two cores of a Zen 5 server: streaming 59 GB/s against memcpy's 56 at 64 MiB, 58
// against 48 at 512 MiB, but 79 against 113 at 8 MiB.
constexpr std::int64_t kStreamingBytes = 32 << 20;

}  // namespace

void CopyOnCpu(void* destination, const void* source, std::int64_t bytes, Executor& executor) {
  executor.ParallelFor((bytes + kTaskBytes - 1) / kTaskBytes, [&](std::int64_t task_idx, int /*slot*/) {
    const std::int64_t begin = task_idx * kTaskBytes;
    const std::int64_t size = std::min(kTaskBytes, bytes - begin);
    std::uint8_t* to = static_cast<std::uint8_t*>(destination) + begin;
    const std::uint8_t* from = static_cast<const std::uint8_t*>(source) + begin;
    if (bytes >= kStreamingBytes) {
      HWY_DYNAMIC_DISPATCH(StreamingCopy)(to, from, size);
    } else {
      std::memcpy(to, from, size);
    }
  });
}

}  // namespace ridgeline::kernels::microbench
#endif  // HWY_ONCE
