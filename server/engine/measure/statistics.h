// What a set of samples says.
#pragma once

#include <cstdint>
#include <vector>

namespace ridgeline::engine::measure {

// All in the samples' unit; all zero without samples.
struct Statistics {
  std::int64_t samples = 0;
  double median = 0;
  double mean = 0;
  double standard_deviation = 0;  // of the samples, n - 1; 0 for one
  double minimum = 0;
  double p5 = 0;  // percentiles lie between ranks in proportion: p of n samples is at rank p / 100 * (n - 1), counted from 0
  double p95 = 0;
  // Half the width of the median's 95 % confidence interval, as a share of the median: how far off the median may be. It needs
  // no assumption about the distribution (it is read off the ranks), and shrinks as samples come. Infinite while there are
  // fewer than kMinSamplesForNoise.
  double relative_noise = 0;
};

// With fewer, not even the interval from the smallest to the largest sample holds the median with 95 %.
inline constexpr std::int64_t kMinSamplesForNoise = 6;

Statistics Summarise(std::vector<double> samples);

}  // namespace ridgeline::engine::measure
