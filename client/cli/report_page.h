// Benchmarks of one device as one HTML page that needs nothing else: no network, no script.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/cli/benchmark_run.h"
#include "ridgeline/v1/benchmark.pb.h"
#include "ridgeline/v1/device.pb.h"

namespace ridgeline::cli {

struct ReportContent {
  v1::Device device;
  v1::Roofline roofline;
  std::vector<BenchmarkRun> runs;
  std::vector<v1::BenchmarkDescription> unsupported;  // by this device
  absl::Time time;
};

// Device, what is borne out, the roofline with every point that has a place on it, a section for each benchmark.
std::string RenderReport(const ReportContent& content);

}  // namespace ridgeline::cli
