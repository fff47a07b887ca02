// One attention call made several times.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "google/protobuf/duration.pb.h"
#include "ridgeline/v1/attention.pb.h"

namespace ridgeline::cli {

double Seconds(const google::protobuf::Duration& duration);

struct Measurement {
  v1::AttendResponse first;       // the first answer: all of them hold the same tensors
  v1::ExecutionReport report;     // of the run whose kernel time is the median; the lower of two middle ones
  double round_trip_seconds = 0;  // of that run, on this side's clock
  double min_kernel_seconds = 0;  // over all runs
  double max_kernel_seconds = 0;
};

// Makes the call `num_runs` times (at least 1), one after the other. The first error ends it.
absl::StatusOr<Measurement> Measure(const client::Client& client, const v1::AttendRequest& request, int num_runs);

}  // namespace ridgeline::cli
