// An earlier run's points beside this one's: what changed, and what is noise.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/benchmark_run.h"
#include "client/cli/document.h"
#include "google/protobuf/map.h"

namespace ridgeline::cli {

enum class Change { kNoise, kFaster, kSlower };

// Seconds of one run.
struct Spread {
  double median = 0, p5 = 0, p95 = 0;
};

// Slower or faster if the middle 90 % of the samples of before and now do not touch, and the medians are more than 3 % apart;
// noise otherwise. So one outlier, or a wider scatter, is no regression.
Change Compare(const Spread& before, const Spread& now);

// What `ridgeline bench --format=json` printed.
class EarlierRun {
 public:
  // INVALID_ARGUMENT naming the file: it can't be read, is no JSON, or has no points.
  static absl::StatusOr<EarlierRun> Read(const std::string& path);
  static absl::StatusOr<EarlierRun> Parse(const std::string& json, const std::string& path);

  const std::string& device() const { return device_; }
  // Null: the earlier run has no such point, or skipped it.
  const Spread* Find(const std::string& benchmark, const google::protobuf::Map<std::string, std::string>& axis_values) const;

 private:
  struct Row {
    std::map<std::string, std::string> members;  // words and integers, as text: the benchmark, values of axes
    Spread spread;
  };

  std::string device_;
  std::vector<Row> rows_;
};

struct Comparison {
  Document document;
  int num_slower = 0;
  int num_faster = 0;
};

Comparison CompareRuns(const EarlierRun& before, const std::vector<BenchmarkRun>& now);

}  // namespace ridgeline::cli
