// Products and sums of sizes that stop at INT64_MAX instead of wrapping: a size that no memory has, and every check refuses.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>

namespace ridgeline::kernels {

// Operands are not negative.
constexpr std::int64_t SaturatingAdd(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

// Factors are not negative; a factor of 0 makes 0, however large the others.
constexpr std::int64_t SaturatingMultiply(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  bool saturated = false;
  for (const std::int64_t factor : factors) {
    if (factor == 0) return 0;
    saturated = saturated || __builtin_mul_overflow(product, factor, &product);
  }
  return saturated ? std::numeric_limits<std::int64_t>::max() : product;
}

}  // namespace ridgeline::kernels
