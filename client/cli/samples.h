// Times of a load's requests, and what they say together.
#pragma once

#include <cstdint>
#include <vector>

namespace ridgeline::cli {

// Exact: every sample is kept, 8 bytes each.
class Samples {
 public:
  void Add(double sample) { samples_.push_back(sample); }
  void Append(const Samples& other) { samples_.insert(samples_.end(), other.samples_.begin(), other.samples_.end()); }
  std::int64_t count() const { return static_cast<std::int64_t>(samples_.size()); }

  struct Summary {
    double mean = 0;
    std::vector<double> quantiles;  // [quantiles asked for]
    double max = 0;
  };
  // Quantiles in thousandths, 1 to 1000, by nearest rank: the smallest sample that is not below that share of all of them, so
  // always one that was measured. Needs at least one sample; sorts them.
  Summary Summarize(const std::vector<int>& per_mille);

 private:
  std::vector<double> samples_;
};

}  // namespace ridgeline::cli
