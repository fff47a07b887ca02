#include "client/cli/measurement.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace ridgeline::cli {
namespace {

struct Run {
  v1::ExecutionReport report;
  double round_trip_seconds;
};

double KernelSeconds(const Run& run) { return Seconds(run.report.kernel_time()); }

Timing TimingOf(std::vector<Run> runs) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return KernelSeconds(a) < KernelSeconds(b); });
  const Run& median = runs[(runs.size() - 1) / 2];
  return {.report = median.report,
          .round_trip_seconds = median.round_trip_seconds,
          .min_kernel_seconds = KernelSeconds(runs.front()),
          .max_kernel_seconds = KernelSeconds(runs.back())};
}

template <typename Result, typename Call>
absl::StatusOr<Result> MeasureCalls(Call call, int num_runs) {
  Result measurement;
  std::vector<Run> runs;
  for (int i = 0; i < num_runs; ++i) {
    const absl::Time start = absl::Now();
    auto response = call();
    const absl::Duration round_trip = absl::Now() - start;
    if (!response.ok()) return response.status();
    runs.push_back({response->report(), absl::ToDoubleSeconds(round_trip)});
    if (i == 0) measurement.first = *std::move(response);
  }
  static_cast<Timing&>(measurement) = TimingOf(std::move(runs));
  return measurement;
}

}  // namespace

double Seconds(const google::protobuf::Duration& duration) {
  return absl::ToDoubleSeconds(absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos()));
}

absl::StatusOr<Measurement> Measure(const client::Client& client, const v1::AttendRequest& request, int num_runs) {
  return MeasureCalls<Measurement>([&] { return client.Attend(request); }, num_runs);
}

absl::StatusOr<FuseMeasurement> Measure(const client::Client& client, const v1::FuseRequest& request, int num_runs) {
  return MeasureCalls<FuseMeasurement>([&] { return client.Fuse(request); }, num_runs);
}

}  // namespace ridgeline::cli
