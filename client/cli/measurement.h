// One call made several times.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "google/protobuf/duration.pb.h"
#include "ridgeline/v1/attention.pb.h"
#include "ridgeline/v1/fused.pb.h"

namespace ridgeline::cli {

double Seconds(const google::protobuf::Duration& duration);

struct Timing {
  v1::ExecutionReport report;     // of the run whose kernel time is the median; the lower of two middle ones
  double round_trip_seconds = 0;  // of that run, on this side's clock
  double min_kernel_seconds = 0;  // over all runs
  double max_kernel_seconds = 0;
};

struct Measurement : Timing {
  v1::AttendResponse first;  // the first answer: all of them hold the same tensors
};

struct FuseMeasurement : Timing {
  v1::FuseResponse first;
};

// Makes the call `num_runs` times (at least 1), one after the other. The first error ends it.
absl::StatusOr<Measurement> Measure(const client::Client& client, const v1::AttendRequest& request, int num_runs);
absl::StatusOr<FuseMeasurement> Measure(const client::Client& client, const v1::FuseRequest& request, int num_runs);

}  // namespace ridgeline::cli
