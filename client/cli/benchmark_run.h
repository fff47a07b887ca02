// One benchmark as the daemon ran it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "ridgeline/v1/benchmark.pb.h"

namespace ridgeline::cli {

struct BenchmarkRun {
  v1::BenchmarkDescription description;
  std::vector<v1::BenchmarkPoint> points;
  v1::BenchmarkSummary summary;
};

// Shows progress on a terminal.
absl::StatusOr<BenchmarkRun> RunBenchmark(const client::Client& client, const v1::BenchmarkDescription& description,
                                          const v1::BenchmarkRequest& request);

// "operation=read, working_set_bytes=16384", in the order of the description's axes.
std::string AxisText(const v1::BenchmarkDescription& description,
                     const google::protobuf::Map<std::string, std::string>& values);

}  // namespace ridgeline::cli
