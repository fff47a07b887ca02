#include "server/device/gather_copy.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

namespace ridgeline::device {
namespace {

// Bytes of one task: some 30 µs of copying, beside which handing it out is cheap; and few enough to be cached by whoever wrote
// them, so that memcpy does not stream past the caches that the kernel will read from.
constexpr std::int64_t kTaskBytes = std::int64_t{256} << 10;

class Gather {
 public:
  Gather(absl::Span<const HostSlice> slices, char* destination) : slices_(slices), destination_(destination) {
    ends_.reserve(slices.size());
    for (const HostSlice& slice : slices) ends_.push_back(size_bytes() + slice.size_bytes);
  }

  std::int64_t size_bytes() const { return ends_.empty() ? 0 : ends_.back(); }

  // Bytes [begin, end) of the result.
  void CopyRange(std::int64_t begin, std::int64_t end) const {
    auto slice_end = std::upper_bound(ends_.begin(), ends_.end(), begin);
    while (begin < end) {
      const HostSlice& slice = slices_[std::distance(ends_.begin(), slice_end)];
      const std::int64_t slice_begin = *slice_end - slice.size_bytes;
      const std::int64_t copy_end = std::min(end, *slice_end);
      if (begin < copy_end) {
        std::memcpy(destination_ + begin, static_cast<const char*>(slice.data) + (begin - slice_begin), copy_end - begin);
      }
      begin = copy_end;
      ++slice_end;
    }
  }

 private:
  const absl::Span<const HostSlice> slices_;
  char* const destination_;
  std::vector<std::int64_t> ends_;  // in the result
};

}  // namespace

void GatherCopy(absl::Span<const HostSlice> slices, void* destination, kernels::Executor& executor) {
  const Gather gather(slices, static_cast<char*>(destination));
  const std::int64_t num_tasks = (gather.size_bytes() + kTaskBytes - 1) / kTaskBytes;
  executor.ParallelFor(num_tasks, [&gather](std::int64_t task_idx, int) {
    const std::int64_t begin = task_idx * kTaskBytes;
    gather.CopyRange(begin, std::min(begin + kTaskBytes, gather.size_bytes()));
  });
}

}  // namespace ridgeline::device
