// A server in this process whose device fails once, at every call on the path of each method in turn, seen through a real
// socket.
#include <functional>
#include <memory>
#include <string>
#include <vector>

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
#include "tests/integration/kv_cache_fixture.h"
#include "tests/support/flaky_device.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::integration {
namespace {

using client::Client;
using support::IsOk;
using support::StatusIs;

constexpr char kSequence[] = "kvCaches/c/sequences/a";

v1::Tensor Zeros(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  return InlineTensor(shape, std::vector<float>(static_cast<std::size_t>(elements)));
}

// Inline and random tensors, log-sum-exp and a bias: every call of the device is on the path.
v1::AttendRequest FullRequest() {
  v1::AttendRequest request;
  *request.mutable_query() = Zeros({1, 3, 2, 8});
  *request.mutable_dense()->mutable_key() = Zeros({1, 5, 2, 8});
  v1::Tensor& value = *request.mutable_dense()->mutable_value();
  value = Zeros({1, 5, 2, 8});
  value.mutable_random()->set_seed(1);
  *request.mutable_options()->mutable_bias() = Zeros({1, 1, 3, 5});
  request.mutable_output()->set_log_sum_exp(true);
  return request;
}

absl::Status Attend(const Client& client) { return client.Attend(FullRequest()).status(); }

absl::Status Fuse(const Client& client) {
  v1::FuseRequest request;
  *request.mutable_layer_norm()->mutable_input() = Zeros({4, 16});
  *request.mutable_layer_norm()->mutable_weight() = Zeros({16});
  request.set_mode(v1::EXECUTION_MODE_UNFUSED);
  return client.Fuse(request).status();
}

absl::Status Step(const Client& client) {
  return client.Attend(StepRequest(kSequence, 0, RandomTokens(1, 1), /*query_seed=*/2)).status();
}

absl::Status Append(const Client& client) {
  return client.AppendKeyValue(AppendRequest(kSequence, 1, RandomTokens(2, 3))).status();
}

absl::Status Export(const Client& client) {
  return client.ExportSequence(kSequence, [](const v1::SequencePart&) { return absl::OkStatus(); });
}

absl::Status MakeAndDeleteCache(const Client& client) {
  const auto cache = client.CreateKvCache(CacheRequest("more", /*capacity_pages=*/4));
  return cache.ok() ? client.DeleteKvCache(cache->name()) : cache.status();
}

struct Method {
  std::string name;
  std::function<absl::Status(const Client&)> call;
  int least_calls;  // of the device's
};

class FaultsTest : public ::testing::TestWithParam<Method> {};

TEST_P(FaultsTest, EveryDeviceCallMayFailAndTheServerServesOn) {
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
  ASSERT_THAT(client.CreateKvCache(CacheRequest("c", /*capacity_pages=*/64)), IsOk());
  ASSERT_THAT(client.CreateSequence("kvCaches/c", "a"), IsOk());
  ASSERT_THAT(Append(client), IsOk());

  const std::int64_t calls_before = device.num_calls();
  ASSERT_THAT(GetParam().call(client), IsOk());
  const std::int64_t calls = device.num_calls() - calls_before;
  ASSERT_GE(calls, GetParam().least_calls);
  for (std::int64_t n = 0; n < calls; ++n) {
    device.FailCall(n, absl::InternalError("injected"));
    const absl::Status failed = GetParam().call(client);
    EXPECT_THAT(failed, StatusIs(absl::StatusCode::kInternal, ::testing::HasSubstr("injected"))) << "call " << n;
    EXPECT_EQ(client::ErrorReason(failed), "INTERNAL") << "call " << n;
    EXPECT_THAT(GetParam().call(client), IsOk()) << "after call " << n;
  }
  ASSERT_THAT(client.DeleteKvCache("kvCaches/c"), IsOk());
  for (int i = 0; i < 1000 && device.memory_stats().allocation_count != 0; ++i) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(device.memory_stats().allocation_count, 0);
}

INSTANTIATE_TEST_SUITE_P(, FaultsTest,
                         ::testing::Values(Method{"Attend", Attend, 10}, Method{"Fuse", Fuse, 5}, Method{"Step", Step, 8},
                                           Method{"Append", Append, 3}, Method{"Export", Export, 5},
                                           Method{"CreateKvCache", MakeAndDeleteCache, 1}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace ridgeline::integration
