// Quantities as people read them: three significant digits and a unit of a fitting size.
#pragma once

#include <cstdint>
#include <string>

namespace ridgeline::cli {

std::string FormatBytes(std::int64_t bytes);                // "512 B", "1.50 MiB": powers of 1024, as memory comes
std::string FormatSeconds(double seconds);                  // "1.23 ms"
std::string FormatFlops(double flops);                      // "8.59 GFLOP"
std::string FormatFlopsPerSecond(double flops_per_second);  // "213 GFLOP/s"
std::string FormatBytesPerSecond(double bytes_per_second);  // "22.4 GB/s": powers of 1000, as bandwidth comes
std::string FormatPerSecond(double per_second);             // "12.3 k/s"
std::string FormatFraction(double fraction);                // "71.3 %"
std::string FormatNumber(double number);                    // "47.1"; "2.38e-07" where digits would hide
std::string FormatCount(std::int64_t count);                // "1,048,576"

}  // namespace ridgeline::cli
