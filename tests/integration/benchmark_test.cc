// The measuring instrument over a real socket.
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "client/cpp/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/raw_call.h"
#include "tests/support/daemon.h"
#include "tests/support/status_matchers.h"

namespace ridgeline {
namespace {

using client::Client;
using support::Daemon;
using support::IsOk;
using support::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kBenchmark[] = "/ridgeline.v1.BenchmarkService/Benchmark";

struct Events {
  int num_progress = 0;
  std::vector<v1::BenchmarkPoint> points;
  std::vector<v1::BenchmarkSummary> summaries;
};

class BenchmarkTest : public ::testing::Test {
 protected:
  static Client Connect(const Daemon& daemon, absl::Duration timeout = absl::Minutes(2)) {
    client::ClientOptions options;
    options.timeout = timeout;
    return *Client::Create(daemon.unix_address(), options);
  }

  static v1::BenchmarkRequest Small() {
    v1::BenchmarkRequest request;
    request.set_name("batch_size");
    SetAxis(request, "batch", {"1", "4"});
    SetAxis(request, "width", {"64"});
    SetAxis(request, "type", {"float32"});
    request.mutable_measurement()->mutable_max_time()->set_nanos(20'000'000);
    return request;
  }

  // A minute at least.
  static v1::BenchmarkRequest Long() {
    v1::BenchmarkRequest request = Small();
    *request.mutable_measurement() = {};
    request.mutable_measurement()->mutable_min_time()->set_seconds(30);
    return request;
  }

  static void SetAxis(v1::BenchmarkRequest& request, const std::string& name, const std::vector<std::string>& values) {
    v1::AxisValues& axis = (*request.mutable_axes())[name];
    axis.clear_values();
    for (const std::string& value : values) axis.add_values(value);
  }

  static absl::Status Run(const Client& client, const v1::BenchmarkRequest& request, Events& events) {
    return client.Benchmark(request, [&](v1::BenchmarkResponse event) {
      events.num_progress += event.has_progress() ? 1 : 0;
      if (event.has_point()) events.points.push_back(event.point());
      if (event.has_summary()) events.summaries.push_back(event.summary());
      return absl::OkStatus();
    });
  }
};

TEST_F(BenchmarkTest, TheListHasEveryBenchmarkWithItsAxesOrTheReason) {
  Daemon daemon;
  ASSERT_OK_AND_ASSIGN(const v1::ListBenchmarksResponse list, Connect(daemon).ListBenchmarks());
  EXPECT_GE(list.benchmarks_size(), 14);
  for (const v1::BenchmarkDescription& benchmark : list.benchmarks()) {
    SCOPED_TRACE(benchmark.name());
    EXPECT_THAT(benchmark.description(), Not(IsEmpty()));
    EXPECT_FALSE(benchmark.axes().empty());
    for (const v1::BenchmarkAxis& axis : benchmark.axes()) {
      EXPECT_THAT(axis.description(), Not(IsEmpty())) << axis.name();
      EXPECT_THAT(axis.default_values(), Not(IsEmpty())) << axis.name();
      EXPECT_TRUE(!axis.choices().empty() || axis.maximum() > axis.minimum()) << axis.name();
    }
  }
}

TEST_F(BenchmarkTest, StreamsProgressAPointForEachCombinationAndASummary) {
  Daemon daemon;
  const Client client = Connect(daemon);
  Events events;
  ASSERT_THAT(Run(client, Small(), events), IsOk());
  EXPECT_GE(events.num_progress, 1);
  ASSERT_EQ(events.points.size(), 2u);
  const v1::BenchmarkPoint& point = events.points[1];
  EXPECT_EQ(point.axis_values().at("batch"), "4");
  EXPECT_THAT(point.skipped_reason(), IsEmpty());
  EXPECT_EQ(point.report().flops(), 2 * 4 * 64 * 64);
  EXPECT_EQ(point.report().algorithm(), v1::ALGORITHM_UNSPECIFIED);
  EXPECT_GT(point.report().kernel_time().nanos(), 0);
  EXPECT_GT(point.report().roof_fraction(), 0);
  EXPECT_NE(point.report().bound(), v1::BOUND_UNSPECIFIED);
  EXPECT_EQ(point.data_type(), v1::DATA_TYPE_FLOAT32);
  EXPECT_NE(point.stop_reason(), v1::STOP_REASON_UNSPECIFIED);
  EXPECT_EQ(point.noisy(), point.stop_reason() == v1::STOP_REASON_TIME_LIMIT);
  const v1::Statistics& statistics = point.statistics();
  EXPECT_GE(statistics.samples(), 1);
  EXPECT_LE(statistics.minimum(), statistics.p5());
  EXPECT_LE(statistics.p5(), statistics.median());
  EXPECT_LE(statistics.median(), statistics.p95());
  ASSERT_EQ(events.summaries.size(), 1u);
  const v1::BenchmarkSummary& summary = events.summaries[0];
  EXPECT_EQ(summary.points(), 2);
  EXPECT_EQ(summary.seed(), 1u);
  EXPECT_EQ(summary.input_distribution(), "normal(0, 1)");
  EXPECT_EQ(summary.measurement().max_time().nanos(), 20'000'000);
  EXPECT_THAT(summary.serving_policy(), HasSubstr("wait"));
  EXPECT_EQ(client.GetMemoryStats()->allocated_bytes(), 0);
}

// Sizes that no tile and no vector divides; what is not named has its defaults. Results are checked before they are timed, so
// that a benchmark that runs is one that computes what it says: on whichever device the tests drive.
using SmallAxes = std::vector<std::pair<std::string, std::vector<std::string>>>;
const std::map<std::string, SmallAxes>& SmallAxesOfEach() {
  static const auto* const kAxes = new std::map<std::string, SmallAxes>{
      {"memory_hierarchy", {{"working_set_bytes", {"1024", "17408", "1048576", "5000192"}}}},
      {"compute_peak", {{"chains", {"1", "8"}}}},
      {"roofline", {{"array_bytes", {"16384", "1064960", "2097152"}}}},
      {"coalescing", {{"step", {"1", "3"}}}},
      {"gemm_ladder", {{"size", {"16", "65", "130", "328"}}}},
      {"fusion", {{"rows", {"1", "18"}}, {"columns", {"64", "192"}}}},
      {"attention", {{"tokens", {"1", "100"}}, {"head_dim", {"64"}}, {"page_tokens", {"0", "16"}}, {"batch", {"3"}}}},
      {"online_softmax", {{"columns", {"64", "448", "4096", "40000"}}}},
      {"launch_overhead", {{"kernels", {"1", "7", "256"}}}},
      {"precision", {{"size", {"64"}}}},
      {"allocator", {{"size_bytes", {"1", "5000", "1048576"}}}},
      {"batch_size", {{"batch", {"1", "3"}}, {"width", {"64"}}}},
  };
  return *kAxes;
}

TEST_F(BenchmarkTest, EachThatTheDeviceHasComputesWhatItSays) {
  Daemon daemon;
  const Client client = Connect(daemon);
  ASSERT_OK_AND_ASSIGN(const v1::ListBenchmarksResponse list, client.ListBenchmarks());
  for (const v1::BenchmarkDescription& benchmark : list.benchmarks()) {
    const auto small = SmallAxesOfEach().find(benchmark.name());
    if (!benchmark.unsupported_reason().empty() || small == SmallAxesOfEach().end()) continue;
    SCOPED_TRACE(benchmark.name());
    v1::BenchmarkRequest request;
    request.set_name(benchmark.name());
    for (const auto& [axis, values] : small->second) SetAxis(request, axis, values);
    request.mutable_measurement()->mutable_warm_up();
    request.mutable_measurement()->mutable_max_time()->set_nanos(1'000'000);
    Events events;
    ASSERT_THAT(Run(client, request, events), IsOk());
    ASSERT_EQ(events.summaries.size(), 1u);
    EXPECT_GT(events.summaries[0].points(), 0);
    for (const v1::BenchmarkPoint& point : events.points) {
      EXPECT_EQ(point.skipped_reason().empty(), point.statistics().samples() > 0) << point.ShortDebugString();
    }
  }
  EXPECT_EQ(client.GetMemoryStats()->allocated_bytes(), 0);
}

TEST_F(BenchmarkTest, BadRequestsNameTheField) {
  Daemon daemon;
  const Client client = Connect(daemon);
  const auto fails = [&](const v1::BenchmarkRequest& request, absl::StatusCode code, const std::string& field) {
    Events events;
    const absl::Status status = Run(client, request, events);
    EXPECT_THAT(status, StatusIs(code)) << request.ShortDebugString();
    EXPECT_THAT(client::ErrorString(status), HasSubstr(field)) << request.ShortDebugString();
    EXPECT_EQ(events.num_progress, 0) << "nothing was begun";
  };
  v1::BenchmarkRequest request = Small();
  request.set_name("perpetual_motion");
  fails(request, absl::StatusCode::kNotFound, "BENCHMARK_NOT_FOUND");
  ASSERT_OK_AND_ASSIGN(const v1::ListBenchmarksResponse list, client.ListBenchmarks());
  for (const v1::BenchmarkDescription& benchmark : list.benchmarks()) {
    if (benchmark.unsupported_reason().empty()) continue;
    request.set_name(benchmark.name());
    fails(request, absl::StatusCode::kUnimplemented, "name");
  }
  request = Small();
  SetAxis(request, "hight", {"1"});
  fails(request, absl::StatusCode::kInvalidArgument, "axes");
  request = Small();
  SetAxis(request, "width", {"sixty-four"});
  fails(request, absl::StatusCode::kInvalidArgument, "axes.width");
  request = Small();
  SetAxis(request, "width", {});
  fails(request, absl::StatusCode::kInvalidArgument, "axes.width");
  request = Small();
  request.mutable_measurement()->mutable_max_time()->set_seconds(-1);
  fails(request, absl::StatusCode::kInvalidArgument, "measurement.max_time");
  request = Small();
  request.mutable_measurement()->set_max_relative_noise(2);
  fails(request, absl::StatusCode::kInvalidArgument, "measurement.max_relative_noise");
}

TEST_F(BenchmarkTest, BytesThatAreNoMessageAreMalformed) {
  Daemon daemon;
  const RawAnswer answer = CallRaw(daemon.tcp_address(), kBenchmark, "\xff\xff");
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(answer.status.error_details(), HasSubstr("MALFORMED_MESSAGE"));
}

TEST_F(BenchmarkTest, ServingWaitsWhileOneRunsAndASecondIsRefused) {
  Daemon daemon;
  const Client client = Connect(daemon);
  absl::Status benchmark_status;
  std::thread benchmark([&] {
    benchmark_status = client.Benchmark(Long(), [&](const v1::BenchmarkResponse& event) {
      const bool runs = event.has_progress() && !event.progress().waiting();
      if (!runs) return absl::OkStatus();
      // Another benchmark is refused, an Attend waits in the queue until its deadline.
      Events events;
      const absl::Status second = Run(client, Small(), events);
      EXPECT_THAT(second, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("batch_size")));
      EXPECT_EQ(client::ErrorReason(second), "BENCHMARK_RUNNING");
      v1::AttendRequest attend;
      for (v1::Tensor* tensor :
           {attend.mutable_query(), attend.mutable_dense()->mutable_key(), attend.mutable_dense()->mutable_value()}) {
        tensor->set_data_type(v1::DATA_TYPE_FLOAT32);
        for (const int extent : {1, 4, 1, 8}) tensor->add_shape(extent);
        tensor->mutable_random()->set_seed(1);
      }
      EXPECT_THAT(Connect(daemon, absl::Milliseconds(300)).Attend(attend), StatusIs(absl::StatusCode::kDeadlineExceeded));
      return absl::CancelledError("seen enough");
    });
  });
  benchmark.join();
  EXPECT_THAT(benchmark_status, StatusIs(absl::StatusCode::kCancelled));
  // The cancelled one leaves: the next gets the device.
  Events events;
  absl::Status status;
  for (int tries = 0; tries < 600; ++tries) {
    status = Run(client, Small(), events);
    if (status.ok()) break;
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_THAT(status, IsOk());
  EXPECT_EQ(client.GetMemoryStats()->allocated_bytes(), 0);
}

TEST_F(BenchmarkTest, TheDeadlineEndsIt) {
  Daemon daemon;
  Events events;
  EXPECT_THAT(Run(Connect(daemon, absl::Seconds(1)), Long(), events), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(events.summaries.empty());
}

TEST_F(BenchmarkTest, ServingIsRefusedWhereTheFlagSaysSo) {
  Daemon daemon({"--serving_during_benchmarks=refuse"});
  const Client client = Connect(daemon);
  Events events;
  ASSERT_THAT(Run(client, Small(), events), IsOk());
  EXPECT_THAT(events.summaries.at(0).serving_policy(), HasSubstr("refused"));
}

TEST_F(BenchmarkTest, CallsAreCounted) {
  Daemon daemon;
  Events events;
  ASSERT_THAT(Run(Connect(daemon), Small(), events), IsOk());
  const std::string metrics = support::HttpRequest("GET", daemon.metrics_address(), "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("method=\"ridgeline.v1.BenchmarkService/Benchmark\""));
  EXPECT_THAT(metrics, HasSubstr("ridgeline_benchmark_points_total{outcome=\"measured\"} 2"));
}

}  // namespace
}  // namespace ridgeline
