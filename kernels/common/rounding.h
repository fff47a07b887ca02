// Whole multiples of sizes.
#pragma once

#include <cstdint>

namespace ridgeline::kernels {

// Operands are not negative, the divisor is not 0, and their sum does not overflow.
constexpr std::int64_t CeilDivide(std::int64_t dividend, std::int64_t divisor) { return (dividend + divisor - 1) / divisor; }

// The least multiple that is not below the value.
constexpr std::int64_t RoundUp(std::int64_t value, std::int64_t multiple) { return CeilDivide(value, multiple) * multiple; }

}  // namespace ridgeline::kernels
