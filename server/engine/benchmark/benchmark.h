// What the measuring instrument is asked and what it tells, as ridgeline.v1's BenchmarkService has it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/common/data_type.h"
#include "server/device/device.h"
#include "server/engine/benchmark/axes.h"
#include "server/engine/measure/sampling.h"
#include "server/engine/measure/statistics.h"
#include "server/engine/report.h"

namespace ridgeline::engine::benchmark {

// How a person should draw the points: one line for each combination of the axes but x.
struct Plot {
  std::string x_axis;                  // an integer axis, drawn on a logarithmic scale; empty: bars
  std::string y = "bytes_per_second";  // or "flops_per_second", "seconds", or the name of a figure
};

struct Description {
  std::string name;
  std::string claim;  // what it shows, in a sentence or two
  std::vector<Axis> axes;
  Plot plot;
  std::string unsupported_reason;  // empty: this device has it
};

struct MeasurementOptions {
  std::optional<absl::Duration> warm_up = {}, min_time = {}, max_time = {};
  std::optional<double> max_relative_noise = {};
  bool cold_cache = false;
};

struct Request {
  std::string name;
  std::map<std::string, std::vector<std::string>> axes;
  MeasurementOptions measurement;
  std::uint64_t seed = 1;  // of random inputs, which are normal(0, 1) unless a description says otherwise
};

// Calls the server that the engine is part of, and awaits its answer; see EngineOptions.
using EmptyCall = std::function<absl::Status()>;

struct Progress {
  std::int64_t points_done = 0;  // measured or skipped
  std::int64_t points_total = 0;
  AxisValues current = {};  // the point that is being measured; empty while waiting
  bool is_waiting = false;  // for the device, which other work still uses
};

struct Point {
  AxisValues values;
  measure::Statistics statistics;  // of the device's time for one run, in seconds
  measure::StopReason stop_reason = measure::StopReason::kTimeLimit;
  std::int64_t repetitions = 0;  // runs in a sample
  std::int64_t discarded_samples = 0;
  bool throttled = false;
  bool noisy = false;                                         // time was up before the samples agreed
  kernels::DataType data_type = kernels::DataType::kFloat32;  // of the compute roof that the report compares with
  ExecutionReport report;                                     // its kernel_time is the median
  std::map<std::string, double> figures;                      // what else there is to know, in base units: latency_seconds
  std::optional<device::GpuStatus> before, after;             // of a GPU whose monitoring answers
  std::string skipped_reason;                                 // not empty: nothing was measured
};

enum class Verdict { kInconclusive, kBorneOut, kNotBorneOut };

struct Finding {
  std::string name;  // "level_1_bytes"
  double value;
  std::string meaning;  // in words
};

// What the points say about the claim.
struct Judgement {
  Verdict verdict = Verdict::kInconclusive;
  std::string explanation;
  std::vector<Finding> findings = {};
};

struct Summary {
  std::int64_t points = 0;  // measured
  std::int64_t skipped_points = 0;
  std::int64_t throttled_points = 0;
  std::int64_t noisy_points = 0;
  absl::Duration elapsed;    // with the device to itself
  absl::Duration wait_time;  // until it had it
  measure::Limits limits;    // as they were applied
  bool cold_cache = false;
  std::uint64_t seed = 1;
  std::string input_distribution;
  std::string serving_policy;  // what happened to other requests meanwhile
  Judgement judgement;
};

using Event = std::variant<Progress, Point, Summary>;

}  // namespace ridgeline::engine::benchmark
