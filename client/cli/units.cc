#include "client/cli/units.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"

namespace ridgeline::cli {
namespace {

// The decimals that leave three significant digits of a magnitude from 1 to 1023.
std::string ThreeDigits(double value) {
  const double magnitude = std::abs(value);
  const int decimals = magnitude < 9.995 ? 2 : magnitude < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f", decimals, value);
}

// Divides by `base` until the number, as it would be printed, is below it.
std::string Scaled(double value, double base, absl::Span<const char* const> units) {
  std::size_t i = 0;
  while (i + 1 < units.size() && std::abs(value) >= base - 0.5) {
    value /= base;
    ++i;
  }
  return absl::StrCat(ThreeDigits(value), " ", units[i]);
}

}  // namespace

std::string FormatBytes(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (std::abs(bytes) < 1024) return absl::StrCat(bytes, " B");
  return Scaled(static_cast<double>(bytes), 1024, kUnits);
}

std::string FormatSeconds(double seconds) {
  constexpr const char* kUnits[] = {"ns", "µs", "ms", "s"};
  if (seconds == 0) return "0 s";
  return Scaled(seconds * 1e9, 1000, kUnits);
}

std::string FormatFlops(double flops) {
  constexpr const char* kUnits[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"};
  return Scaled(flops, 1000, kUnits);
}

std::string FormatFlopsPerSecond(double flops_per_second) {
  constexpr const char* kUnits[] = {"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"};
  return Scaled(flops_per_second, 1000, kUnits);
}

std::string FormatBytesPerSecond(double bytes_per_second) {
  constexpr const char* kUnits[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  return Scaled(bytes_per_second, 1000, kUnits);
}

std::string FormatPerSecond(double per_second) {
  constexpr const char* kUnits[] = {"/s", "k/s", "M/s", "G/s"};
  return Scaled(per_second, 1000, kUnits);
}

std::string FormatFraction(double fraction) { return absl::StrFormat("%.1f %%", 100 * fraction); }

std::string FormatNumber(double number) {
  const double magnitude = std::abs(number);
  if (number == 0) return "0";
  if (!(magnitude >= 0.01 && magnitude < 1e6)) return absl::StrFormat("%.2e", number);
  return ThreeDigits(number);
}

std::string FormatCount(std::int64_t count) {
  std::string digits = absl::StrCat(count);
  const std::ptrdiff_t first_digit = count < 0 ? 1 : 0;
  for (std::ptrdiff_t i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > first_digit; i -= 3) digits.insert(i, 1, ',');
  return digits;
}

}  // namespace ridgeline::cli
