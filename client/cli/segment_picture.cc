#include "client/cli/segment_picture.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/units.h"

namespace ridgeline::cli {
namespace {

constexpr std::size_t kMostLines = 12;
constexpr int kMostCells = 48;

using Segments = std::vector<const v1::MemorySegment*>;

// The largest, in order of address.
Segments Largest(const v1::MemorySnapshot& snapshot) {
  Segments segments;
  for (const v1::MemorySegment& segment : snapshot.segments()) segments.push_back(&segment);
  std::stable_sort(segments.begin(), segments.end(),
                   [](const auto* a, const auto* b) { return a->size_bytes() > b->size_bytes(); });
  segments.resize(std::min(segments.size(), kMostLines));
  std::sort(segments.begin(), segments.end(), [](const auto* a, const auto* b) { return a->address() < b->address(); });
  return segments;
}

// Bytes in [begin, end) of the segment that are in `state`.
std::int64_t BytesIn(const v1::MemorySegment& segment, double begin, double end, v1::MemoryBlockState state) {
  double bytes = 0;
  double at = 0;
  for (const v1::MemoryBlock& block : segment.blocks()) {
    const double next = at + static_cast<double>(block.size_bytes());
    if (block.state() == state) bytes += std::max(0.0, std::min(next, end) - std::max(at, begin));
    at = next;
  }
  return static_cast<std::int64_t>(bytes);
}

std::string Bar(const v1::MemorySegment& segment, int num_cells) {
  std::string bar;
  const double cell_bytes = static_cast<double>(segment.size_bytes()) / num_cells;
  for (int cell = 0; cell < num_cells; ++cell) {
    const double begin = cell * cell_bytes;
    const auto share = [&](v1::MemoryBlockState state) {
      return static_cast<double>(BytesIn(segment, begin, begin + cell_bytes, state)) / cell_bytes;
    };
    const double allocated = share(v1::MEMORY_BLOCK_STATE_ALLOCATED);
    if (allocated > 0.95) {
      bar += "█";
    } else if (allocated > 0.05) {
      bar += "▒";
    } else {
      bar += share(v1::MEMORY_BLOCK_STATE_AWAITING_FREE) > 0.05 ? "~" : "·";
    }
  }
  return bar;
}

}  // namespace

std::vector<std::string> SegmentPicture(const v1::MemorySnapshot& snapshot) {
  std::vector<std::string> lines;
  const Segments segments = Largest(snapshot);
  if (segments.empty()) return lines;
  std::int64_t largest_bytes = 1;
  for (const v1::MemorySegment* const segment : segments) largest_bytes = std::max(largest_bytes, segment->size_bytes());
  for (const v1::MemorySegment* const segment : segments) {
    const double share = static_cast<double>(segment->size_bytes()) / static_cast<double>(largest_bytes);
    const int num_cells = std::max(1, static_cast<int>(std::lround(share * kMostCells)));
    lines.push_back(absl::StrFormat("  %#14x  %-5s %-7s %10s  ", segment->address(),
                                    segment->pool() == v1::MEMORY_POOL_SMALL ? "small" : "large",
                                    segment->growing() ? "growing" : "fixed", FormatBytes(segment->size_bytes())) +
                    Bar(*segment, num_cells));
  }
  const std::size_t num_left = static_cast<std::size_t>(snapshot.segments_size()) - segments.size();
  if (num_left > 0) lines.push_back(absl::StrCat("  and ", num_left, " smaller segments"));
  lines.push_back("  █ allocated   ▒ in part   ~ freed, queued work may still use it   · free");
  return lines;
}

}  // namespace ridgeline::cli
