#include "tests/support/comparator.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ridgeline::support {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Error in units of the bound: right up to 1, infinite where one is NaN or infinite and the other is something else.
double Severity(double got, double want, double bound) {
  if (!std::isfinite(got) || !std::isfinite(want)) {
    const bool match = (std::isnan(got) && std::isnan(want)) || got == want;
    return match ? 0 : kInfinity;
  }
  const double error = std::abs(got - want);
  if (error <= bound) return 0;
  return error / bound;  // infinite for a bound of 0
}

std::string Place(std::int64_t idx, const std::vector<std::int64_t>& shape) {
  std::string place;
  for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent) {
    place = std::to_string(idx % *extent).append(place.empty() ? "" : ", ").append(place);
    idx /= *extent;
  }
  if (place.empty()) place = std::to_string(idx);
  return "[" + place + "]";
}

}  // namespace

::testing::AssertionResult AllWithin(std::span<const double> got, std::span<const double> want, std::span<const double> bound,
                                     const Subject& subject) {
  if (got.size() != want.size() || bound.size() != want.size()) {
    return ::testing::AssertionFailure() << subject.name << ": got " << got.size() << " elements and " << bound.size()
                                         << " bounds, want " << want.size() << "; seed " << subject.seed;
  }
  std::int64_t num_wrong = 0;
  std::size_t worst_idx = 0;
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!(bound[i] >= 0 && bound[i] < kInfinity)) {
      return ::testing::AssertionFailure() << subject.name << ": no bound to hold at "
                                           << Place(static_cast<std::int64_t>(i), subject.shape) << ": " << bound[i]
                                           << "; seed " << subject.seed;
    }
    const double severity = Severity(got[i], want[i], bound[i]);
    if (severity > 0) ++num_wrong;
    if (severity > worst) {
      worst = severity;
      worst_idx = i;
    }
  }
  if (num_wrong == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << subject.name << ": " << num_wrong << " of " << want.size() << " wrong; worst at "
                                       << Place(static_cast<std::int64_t>(worst_idx), subject.shape) << ": got "
                                       << got[worst_idx] << ", want " << want[worst_idx] << ", bound " << bound[worst_idx]
                                       << " (error " << worst << " times that); seed " << subject.seed;
}

ErrorSummary SummarizeErrors(std::span<const double> got, std::span<const double> want) {
  ErrorSummary summary;
  double sum_of_squares = 0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!std::isfinite(want[i])) continue;
    const double error = std::isfinite(got[i]) ? std::abs(got[i] - want[i]) : kInfinity;
    summary.largest = std::max(summary.largest, error);
    sum_of_squares += error * error;
    ++count;
  }
  if (count > 0) summary.root_mean_square = std::sqrt(sum_of_squares / static_cast<double>(count));
  return summary;
}

}  // namespace ridgeline::support
