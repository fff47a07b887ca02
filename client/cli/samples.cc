#include "client/cli/samples.h"

#include <algorithm>
#include <numeric>

namespace ridgeline::cli {

Samples::Summary Samples::Summarize(const std::vector<int>& per_mille) {
  std::sort(samples_.begin(), samples_.end());
  Summary summary;
  summary.mean = std::accumulate(samples_.begin(), samples_.end(), 0.0) / static_cast<double>(count());
  for (const int quantile : per_mille) {
    const std::int64_t rank = (count() * quantile + 999) / 1000;  // from 1, rounded up
    summary.quantiles.push_back(samples_[rank - 1]);
  }
  summary.max = samples_.back();
  return summary;
}

}  // namespace ridgeline::cli
