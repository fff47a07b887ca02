// Benchmarks as documents: one of each for people, one of all for programs.
#pragma once

#include <string>
#include <vector>

#include "client/cli/benchmark_run.h"
#include "client/cli/document.h"
#include "ridgeline/v1/benchmark.pb.h"

namespace ridgeline::cli {

// What --list shows.
Document ListDocument(const v1::ListBenchmarksResponse& list);

// One benchmark: its claim, a row a point with the columns that say something, what was found.
Document RunDocument(const BenchmarkRun& run);

// All points of all benchmarks; axes and figures that a benchmark does not have are null.
Document PointsDocument(const std::string& device, const std::vector<BenchmarkRun>& runs);

// "borne out", "not borne out", "not judged".
std::string VerdictText(v1::Verdict verdict);

// The unit of a figure or finding, by the end of its name: "latency_seconds".
Unit UnitOf(const std::string& name);

}  // namespace ridgeline::cli
