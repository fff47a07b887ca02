// A server in this process whose device fails once, at every call of the Attend path in turn, seen through a real socket.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "client/cpp/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/grpc_server.h"
#include "server/base/clock.h"
#include "server/base/metrics.h"
#include "server/device/cpu_device.h"
#include "server/engine/engine.h"
#include "tests/support/flaky_device.h"
#include "tests/support/status_matchers.h"

namespace ridgeline {
namespace {

using client::Client;
using support::IsOk;
using support::StatusIs;

v1::Tensor Inline(std::initializer_list<std::int64_t> shape) {
  v1::Tensor tensor;
  tensor.set_data_type(v1::DATA_TYPE_FLOAT32);
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) {
    tensor.add_shape(extent);
    elements *= extent;
  }
  tensor.set_inline_data(std::string(elements * sizeof(float), '\0'));
  return tensor;
}

// Inline and random tensors, log-sum-exp and a bias: every call of the device is on the path.
v1::AttendRequest FullRequest() {
  v1::AttendRequest request;
  *request.mutable_query() = Inline({1, 3, 2, 8});
  *request.mutable_dense()->mutable_key() = Inline({1, 5, 2, 8});
  v1::Tensor& value = *request.mutable_dense()->mutable_value();
  value = Inline({1, 5, 2, 8});
  value.mutable_random()->set_seed(1);
  *request.mutable_options()->mutable_bias() = Inline({1, 1, 3, 5});
  request.mutable_output()->set_log_sum_exp(true);
  return request;
}

TEST(FaultsTest, EveryDeviceCallMayFailAndTheServerServesOn) {
  auto made = device::CreateCpuDevice({.num_lanes = 1, .num_threads = 2});
  ASSERT_THAT(made, IsOk());
  support::FlakyDevice device(*std::move(made));
  base::MetricsRegistry metrics;
  const auto engine = engine::CreateEngine({}, device, {}, metrics, base::Clock::Real());
  api::GrpcServerOptions options;
  options.addresses = {"127.0.0.1:0"};
  auto server = api::StartGrpcServer(options, *engine, metrics);
  ASSERT_THAT(server, IsOk());
  const Client client = *Client::Create((*server)->addresses().front());

  ASSERT_THAT(client.Attend(FullRequest()), IsOk());
  const std::int64_t calls_per_request = device.num_calls();
  ASSERT_GT(calls_per_request, 10);
  for (std::int64_t n = 0; n < calls_per_request; ++n) {
    device.FailCall(n, absl::InternalError("injected"));
    const auto failed = client.Attend(FullRequest());
    EXPECT_THAT(failed, StatusIs(absl::StatusCode::kInternal, ::testing::HasSubstr("injected"))) << "call " << n;
    EXPECT_EQ(client::ErrorReason(failed.status()), "INTERNAL") << "call " << n;
    EXPECT_THAT(client.Attend(FullRequest()), IsOk()) << "after call " << n;
  }
  for (int i = 0; i < 1000 && device.memory_stats().allocation_count != 0; ++i) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(device.memory_stats().allocation_count, 0);
}

}  // namespace
}  // namespace ridgeline
