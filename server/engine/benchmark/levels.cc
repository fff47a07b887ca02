#include "server/engine/benchmark/levels.h"

#include <cstddef>

#include "server/engine/measure/statistics.h"

namespace ridgeline::engine::benchmark {
namespace {

// Levels of real machines are a factor of 2.5 or more apart; within a level translation misses add a little.
constexpr double kMostWithin = 1.35;
constexpr double kLeastBetween = 1.6;

Level MakeLevel(const std::vector<LatencySample>& samples, std::size_t begin, std::size_t end) {
  std::vector<double> latencies;
  for (std::size_t i = begin; i < end; ++i) latencies.push_back(samples[i].seconds);
  return {samples[begin].working_set_bytes, samples[end - 1].working_set_bytes, measure::Summarise(latencies).median};
}

}  // namespace

std::vector<Level> FindLevels(const std::vector<LatencySample>& samples) {
  std::vector<Level> levels;
  std::size_t begin = 0;
  for (std::size_t i = 1; i <= samples.size(); ++i) {
    const bool goes_on = i < samples.size() && samples[i].seconds <= kMostWithin * samples[i - 1].seconds;
    if (goes_on) continue;
    if (i - begin >= 2) {
      const Level found = MakeLevel(samples, begin, i);
      // A plateau hardly above the last one is the same level, seen through a bump.
      if (!levels.empty() && found.seconds < kLeastBetween * levels.back().seconds) {
        levels.back().largest_bytes = found.largest_bytes;
      } else {
        levels.push_back(found);
      }
    }
    begin = i;
  }
  return levels;
}

}  // namespace ridgeline::engine::benchmark
