#include "server/engine/measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

namespace ridgeline::engine::measure {
namespace {

double Percentile(const std::vector<double>& sorted, double percent) {
  const double rank = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (rank - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double Mean(const std::vector<double>& samples) {
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

double StandardDeviation(const std::vector<double>& samples, double mean) {
  if (samples.size() < 2) return 0;
  double sum = 0;
  for (const double sample : samples) sum += (sample - mean) * (sample - mean);
  return std::sqrt(sum / static_cast<double>(samples.size() - 1));
}

// How many samples lie below the median is binomial(n, 1/2), nearly normal: within 1.96 of its deviations around n / 2 with 95
// %.
double RelativeNoise(const std::vector<double>& sorted, double median) {
  const auto n = static_cast<double>(sorted.size());
  if (static_cast<std::int64_t>(sorted.size()) < kMinSamplesForNoise) return std::numeric_limits<double>::infinity();
  const double half_width = 1.96 * std::sqrt(n) / 2;
  const auto low = static_cast<std::size_t>(std::max(0.0, std::floor(n / 2 - half_width)));
  const std::size_t high = sorted.size() - 1 - low;
  if (sorted[high] == sorted[low]) return 0;
  return median > 0 ? (sorted[high] - sorted[low]) / 2 / median : std::numeric_limits<double>::infinity();
}

}  // namespace

Statistics Summarise(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const double mean = Mean(samples);
  const double median = Percentile(samples, 50);
  return {.samples = static_cast<std::int64_t>(samples.size()),
          .median = median,
          .mean = mean,
          .standard_deviation = StandardDeviation(samples, mean),
          .minimum = samples.front(),
          .p5 = Percentile(samples, 5),
          .p95 = Percentile(samples, 95),
          .relative_noise = RelativeNoise(samples, median)};
}

}  // namespace ridgeline::engine::measure
