#include "server/base/units.h"

#include <array>
#include <cstddef>

#include "absl/strings/str_format.h"

namespace ridgeline::base {

std::string FormatBytes(std::int64_t bytes) {
  constexpr std::array<const char*, 7> kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return absl::StrFormat("%d bytes", bytes);
  return absl::StrFormat("%.1f %s (%d bytes)", value, kUnits[unit], bytes);
}

}  // namespace ridgeline::base
