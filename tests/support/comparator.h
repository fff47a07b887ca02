// Compares what a kernel answered with what it should have, element by element, each with a bound of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ridgeline::support {

// What is compared, for the message of a failure.
struct Subject {
  std::string name;                 // e.g. "output"
  std::vector<std::int64_t> shape;  // row-major, to name the worst place; empty: a flat index
  std::uint64_t seed = 0;           // of the inputs
};

// Fails unless, for every element, both are NaN, or both are the same infinity, or both are finite and |got - want| <= bound.
// Bounds must be finite and not negative. The message names the worst element (by error / bound), how many are wrong, and the
// seed.
::testing::AssertionResult AllWithin(std::span<const double> got, std::span<const double> want, std::span<const double> bound,
                                     const Subject& subject);

// Errors over a whole tensor, where `want` is finite. Infinite if `got` is not finite there.
struct ErrorSummary {
  double largest = 0;
  double root_mean_square = 0;
};
ErrorSummary SummarizeErrors(std::span<const double> got, std::span<const double> want);

}  // namespace ridgeline::support
