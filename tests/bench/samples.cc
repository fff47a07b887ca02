#include "tests/bench/samples.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

namespace ridgeline::bench {

Summary Summarise(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const std::size_t count = seconds.size();
  return {.median_seconds = seconds[count / 2],
          .min_seconds = seconds.front(),
          .p95_seconds = seconds[std::min(count - 1, count * 95 / 100)],
          .samples = static_cast<int>(count)};
}

double TimeOnce(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<Summary> TimeInTurn(const std::vector<std::function<void()>>& works, int min_rounds, double min_seconds) {
  for (const auto& work : works) work();
  std::vector<std::vector<double>> seconds(works.size());
  double total = 0;
  for (int round = 0; round < min_rounds || total < min_seconds; ++round) {
    for (std::size_t i = 0; i < works.size(); ++i) {
      seconds[i].push_back(TimeOnce(works[i]));
      total += seconds[i].back();
    }
  }
  std::vector<Summary> summaries;
  for (auto& times : seconds) summaries.push_back(Summarise(std::move(times)));
  return summaries;
}

}  // namespace ridgeline::bench
