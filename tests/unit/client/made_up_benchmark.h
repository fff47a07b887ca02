// A benchmark that nobody ran: two measured points and a skipped one.
#pragma once

#include <string>

#include "client/cli/benchmark_run.h"
#include "ridgeline/v1/benchmark.pb.h"

namespace ridgeline::cli {

inline void SetTimes(v1::BenchmarkPoint& point, double median_seconds) {
  v1::Statistics& statistics = *point.mutable_statistics();
  statistics.set_samples(10);
  statistics.set_median(median_seconds);
  statistics.set_mean(median_seconds);
  statistics.set_minimum(0.98 * median_seconds);
  statistics.set_p5(0.99 * median_seconds);
  statistics.set_p95(1.01 * median_seconds);
  statistics.set_relative_noise(0.002);
}

inline v1::BenchmarkPoint MadeUpPoint(const std::string& order, const std::string& size) {
  v1::BenchmarkPoint point;
  (*point.mutable_axis_values())["order"] = order;
  (*point.mutable_axis_values())["size_bytes"] = size;
  (*point.mutable_axis_values())["threads"] = "2";
  return point;
}

inline v1::BenchmarkPoint MeasuredPoint(const std::string& order, const std::string& size, double median_seconds) {
  v1::BenchmarkPoint point = MadeUpPoint(order, size);
  SetTimes(point, median_seconds);
  v1::ExecutionReport& report = *point.mutable_report();
  report.set_bytes_per_second(20e9);
  report.set_flops_per_second(5e9);
  report.set_arithmetic_intensity(0.25);
  report.set_bound(v1::BOUND_MEMORY);
  report.set_roof_fraction(0.5);
  (*point.mutable_figures())["latency_seconds"] = median_seconds / 100'000;
  return point;
}

inline BenchmarkRun MadeUpRun() {
  BenchmarkRun run;
  run.description.set_name("made_up");
  run.description.set_description("It grows with its size.");
  for (const char* axis : {"order", "size_bytes", "threads"}) run.description.add_axes()->set_name(axis);
  run.description.mutable_axes(0)->add_choices("up");
  run.description.mutable_plot()->set_x_axis("size_bytes");
  run.description.mutable_plot()->set_y("seconds");
  run.points = {MeasuredPoint("up", "1024", 100e-6), MeasuredPoint("up", "2048", 200e-6), MadeUpPoint("down", "1024")};
  run.points[1].set_noisy(true);
  run.points[2].set_skipped_reason("it does not fit");
  v1::BenchmarkSummary& summary = run.summary;
  summary.set_points(2);
  summary.set_skipped_points(1);
  summary.set_noisy_points(1);
  summary.mutable_elapsed()->set_seconds(1);
  summary.mutable_elapsed()->set_nanos(500'000'000);
  summary.mutable_measurement()->set_max_relative_noise(0.005);
  summary.set_serving_policy("other requests wait");
  summary.set_verdict(v1::VERDICT_BORNE_OUT);
  summary.set_explanation("twice the size takes twice the time");
  v1::Finding& finding = *summary.add_findings();
  finding.set_name("knee_bytes");
  finding.set_value(2048);
  finding.set_description("where it <bends>");
  return run;
}

}  // namespace ridgeline::cli
