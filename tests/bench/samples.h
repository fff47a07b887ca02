// Repeated timings of one thing.
#pragma once

#include <functional>
#include <vector>

namespace ridgeline::bench {

struct Summary {
  double median_seconds;
  double min_seconds;
  double p95_seconds;
  int samples;
};

// `seconds` is not empty.
Summary Summarise(std::vector<double> seconds);

// Seconds that `work` takes, by the steady clock.
double TimeOnce(const std::function<void()>& work);

// Times several works in turn, so that a slow moment of the machine falls on all of them alike: after one warm-up round, rounds
// until `min_rounds` are done and `min_seconds` have passed.
std::vector<Summary> TimeInTurn(const std::vector<std::function<void()>>& works, int min_rounds, double min_seconds);

}  // namespace ridgeline::bench
