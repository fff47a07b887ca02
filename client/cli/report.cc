#include "client/cli/report.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/arguments.h"

namespace ridgeline::cli {
namespace {

Section ExecutionSection(const v1::ExecutionReport& report) {
  return {"Execution",
          {{"device", "device", report.device()},
           {"algorithm", "algorithm", AlgorithmName(report.algorithm())},
           {"kernel", "kernel", report.kernel()},
           {"kernel_reason", "why this kernel", report.kernel_reason()},
           {"batch_requests", "requests together", std::int64_t{report.batch_requests()}}}};
}

Section TimeSection(const Measurement& measurement, int num_runs) {
  const v1::ExecutionReport& report = measurement.report;
  const bool spread = num_runs > 1;
  const auto time = [](const google::protobuf::Duration& duration) { return Value(Seconds(duration), Unit::kSeconds); };
  Section section = {
      num_runs == 1 ? "Time" : absl::StrCat("Time (the median of ", num_runs, " runs by kernel time)"),
      {{"runs", "", std::int64_t{num_runs}},
       {"queue_time_seconds", "queue", time(report.queue_time())},
       {"upload_time_seconds", "upload", time(report.upload_time())},
       {"kernel_time_seconds", "kernel", time(report.kernel_time())},
       {"min_kernel_time_seconds", spread ? "kernel, fastest" : "", {measurement.min_kernel_seconds, Unit::kSeconds}},
       {"max_kernel_time_seconds", spread ? "kernel, slowest" : "", {measurement.max_kernel_seconds, Unit::kSeconds}},
       {"download_time_seconds", "download", time(report.download_time())},
       {"round_trip_seconds", "round trip", {measurement.round_trip_seconds, Unit::kSeconds}}}};
  for (const v1::KernelPhase& phase : report.kernel_phases()) {
    section.fields.push_back(
        {absl::StrCat("kernel_", phase.name(), "_time_seconds"), absl::StrCat("kernel, ", phase.name()), time(phase.time())});
  }
  return section;
}

Section CostSection(const v1::ExecutionReport& report) {
  return {"Cost",
          {{"flops", "arithmetic", {report.flops(), Unit::kFlops}},
           {"bytes", "bytes moved", {report.bytes(), Unit::kBytes}},
           {"workspace_bytes", "workspace", {report.workspace_bytes(), Unit::kBytes}},
           {"flops_per_second", "arithmetic rate", {report.flops_per_second(), Unit::kFlopsPerSecond}},
           {"bytes_per_second", "bandwidth", {report.bytes_per_second(), Unit::kBytesPerSecond}},
           {"arithmetic_intensity_flops_per_byte", "intensity", {report.arithmetic_intensity(), Unit::kFlopsPerByte}},
           {"bound", "bound by", BoundValue(report.bound())},
           {"roof_fraction", "share of the roof", RoofFractionValue(report)}}};
}

}  // namespace

Value BoundValue(v1::Bound bound) {
  switch (bound) {
    case v1::BOUND_MEMORY:
      return "memory";
    case v1::BOUND_COMPUTE:
      return "compute";
    default:
      return {};
  }
}

Value RoofFractionValue(const v1::ExecutionReport& report) {
  if (report.roof_fraction() == 0) return {};
  return {report.roof_fraction(), Unit::kFraction};
}

void AppendReport(Document& document, const Measurement& measurement, int num_runs) {
  document.sections.push_back(ExecutionSection(measurement.report));
  document.sections.push_back(TimeSection(measurement, num_runs));
  document.sections.push_back(CostSection(measurement.report));
}

}  // namespace ridgeline::cli
