#include "server/abandon_service.h"

#include <future>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "client/cpp/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/base/metrics.h"
#include "server/device/cpu_device.h"
#include "tests/support/flaky_device.h"
#include "tests/support/status_matchers.h"

namespace ridgeline {
namespace {

using client::Client;
using support::IsOk;
using support::StatusIs;

v1::AttendRequest SmallRequest() {
  v1::AttendRequest request;
  const auto fill = [](v1::Tensor& tensor) {
    tensor.set_data_type(v1::DATA_TYPE_FLOAT32);
    for (const std::int64_t extent : {1, 3, 1, 8}) tensor.add_shape(extent);
    tensor.mutable_random()->set_seed(1);
  };
  fill(*request.mutable_query());
  fill(*request.mutable_dense()->mutable_key());
  fill(*request.mutable_dense()->mutable_value());
  return request;
}

Client Connect(const std::string& address) {
  client::ClientOptions options;
  options.timeout = absl::Minutes(1);
  options.retry.max_attempts = 1;
  return *Client::Create(address, options);
}

TEST(AbandonService, NotServingAtOnceAndWhatIsInFlightFails) {
  auto made = device::CreateCpuDevice({.num_lanes = 1, .num_threads = 1});
  ASSERT_THAT(made, IsOk());
  support::FlakyDevice device(*std::move(made));
  base::MetricsRegistry metrics;
  const auto engine = engine::CreateEngine({}, device, {}, metrics, base::Clock::Real());
  api::GrpcServerOptions options;
  options.addresses = {"127.0.0.1:0"};
  const auto server = api::StartGrpcServer(options, *engine, metrics);
  ASSERT_THAT(server, IsOk());
  (*server)->SetServing(true);
  const Client client = Connect((*server)->addresses().front());
  ASSERT_THAT(client.CheckHealth(""), IsOk());

  device.HoldCompletions(0);
  auto in_flight = std::async(std::launch::async, [&] { return client.Attend(SmallRequest()).status(); });
  device.AwaitHeldCompletion(0);
  std::promise<absl::Status> told;
  device.OnLost([&told](const absl::Status& cause) { told.set_value(cause); });
  device.Lose(absl::InternalError("fell off the bus"));
  const absl::Status cause = told.get_future().get();
  auto abandoned = std::async(std::launch::async, [&] { AbandonService(cause, absl::Minutes(1), *engine, **server); });

  absl::Status health = client.CheckHealth("");
  for (int i = 0; i < 1000 && health.ok(); ++i) {
    absl::SleepFor(absl::Milliseconds(5));
    health = client.CheckHealth("");
  }
  EXPECT_FALSE(health.ok()) << "while work is in flight";
  device.ReleaseCompletions(0);
  const absl::Status answer = in_flight.get();
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kUnavailable, ::testing::HasSubstr("fell off the bus")));
  EXPECT_EQ(client::ErrorReason(answer), "DEVICE_FAILED");
  abandoned.get();
  EXPECT_THAT(client.Attend(SmallRequest()), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(AbandonServiceDeathTest, WorkThatNeverEndsDoesNotKeepTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [] {
    support::FlakyDevice device(*device::CreateCpuDevice({.num_lanes = 1, .num_threads = 1}));
    base::MetricsRegistry metrics;
    const auto engine = engine::CreateEngine({}, device, {}, metrics, base::Clock::Real());
    api::GrpcServerOptions options;
    options.addresses = {"127.0.0.1:0"};
    const auto server = *api::StartGrpcServer(options, *engine, metrics);
    const Client client = Connect(server->addresses().front());
    device.HoldCompletions(0);
    auto in_flight = std::async(std::launch::async, [&] { return client.Attend(SmallRequest()).status(); });
    device.AwaitHeldCompletion(0);
    AbandonService(absl::UnavailableError("gone"), absl::Milliseconds(200), *engine, *server);
  };
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(1), "ending with work in flight");
}

}  // namespace
}  // namespace ridgeline
