// Which benchmarks, along which values, measured how: what `bench` and `report` are told.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/client.h"
#include "ridgeline/v1/benchmark.pb.h"

namespace ridgeline::cli {

// "tokens=1024,2048,phase=decode": a word with '=' begins another axis. A usage error for anything else.
absl::StatusOr<std::map<std::string, std::vector<std::string>>> ParseAxes(absl::string_view text);

struct SelectedBenchmark {
  v1::BenchmarkDescription description;
  v1::BenchmarkRequest request;
};

// Those that --benchmarks names, in that order, or all that the device has. --axis goes to those that have the axis; a usage
// error for one that none of them has, and for a benchmark that the daemon does not know.
absl::StatusOr<std::vector<SelectedBenchmark>> SelectFromFlags(const v1::ListBenchmarksResponse& list);

}  // namespace ridgeline::cli
