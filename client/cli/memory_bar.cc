#include "client/cli/memory_bar.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "client/cli/units.h"

namespace ridgeline::cli {
namespace {

constexpr int kBarWidth = 60;

// Cells from the left that `bytes` fill. Anything at all fills one, so that it can be seen.
int NumCells(std::int64_t bytes, std::int64_t full_bytes) {
  if (bytes <= 0 || full_bytes <= 0) return 0;
  const double share = static_cast<double>(bytes) / static_cast<double>(full_bytes);
  return std::clamp(static_cast<int>(std::lround(share * kBarWidth)), 1, kBarWidth);
}

}  // namespace

std::vector<std::string> MemoryBar(const v1::MemoryStats& stats) {
  // Without a limit the peak is the scale.
  const std::int64_t full_bytes = std::max(stats.limit_bytes(), stats.peak_reserved_bytes());
  const int allocated = NumCells(stats.allocated_bytes(), full_bytes);
  const int reserved = NumCells(stats.reserved_bytes(), full_bytes);
  const int peak = NumCells(stats.peak_reserved_bytes(), full_bytes);
  std::string bar = "  ";
  for (int cell = 1; cell <= kBarWidth; ++cell) {
    bar += cell <= allocated ? "█" : cell <= reserved ? "▓" : cell == peak ? "|" : "·";
  }
  return {bar, absl::StrCat("  █ allocated ", FormatBytes(stats.allocated_bytes()), "   ▓ reserved ",
                            FormatBytes(stats.reserved_bytes()), "   | peak ", FormatBytes(stats.peak_reserved_bytes()),
                            "   · limit ", FormatBytes(stats.limit_bytes()))};
}

}  // namespace ridgeline::cli
