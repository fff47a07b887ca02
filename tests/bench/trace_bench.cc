// What tracing costs: a tiny Attend through the engine while nobody captures and while somebody does, beside the part of it
// that is there for tracing alone.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "server/base/clock.h"
#include "server/base/metrics.h"
#include "server/base/notification.h"
#include "server/device/cpu_device.h"
#include "server/engine/engine.h"
#include "tests/bench/samples.h"

namespace ridgeline {
namespace {

constexpr int kCalls = 2000;
constexpr int kLooks = 3;   // at the recorder's flag, of each request: as it leaves, as it completes, as its call ends
constexpr int kCopies = 2;  // of a request's ids: into the call's context and into the scheduler's traits

engine::Tensor Tiny() {
  return {.data_type = kernels::DataType::kFloat32, .shape = {1, 1, 1, 8}, .storage = engine::RandomFill{.seed = 1}};
}

void Attend(engine::Engine& engine, const engine::TraceOrigin& origin) {
  engine::AttendRequest request;
  request.query = Tiny();
  request.dense.emplace();
  request.dense->key = Tiny();
  request.dense->value = Tiny();
  request.output.discard = true;
  base::Notification done;
  engine.Attend(std::move(request), {.origin = origin}, [&](const absl::StatusOr<engine::AttendResult>& result) {
    if (!result.ok()) std::abort();
    done.Notify();
  });
  done.Wait();
}

// Out of line, so that the copies are made.
__attribute__((noinline)) void Keep(const engine::TraceOrigin& origin) { asm volatile("" : : "r"(&origin) : "memory"); }

int Main() {
  base::MetricsRegistry metrics;
  device::CpuDeviceOptions options;
  options.num_lanes = 1;
  options.num_threads = 1;
  auto device = device::CreateCpuDevice(options);
  if (!device.ok()) return EXIT_FAILURE;
  const auto engine = engine::CreateEngine({}, **device, engine::Roofline(), metrics, base::Clock::Real());
  const engine::TraceOrigin origin{.request_id = "0123456789abcdef-12345678",
                                   .trace_id = "4bf92f3577b34da6a3ce929d0e0e4736",
                                   .parent_id = "00f067aa0ba902b7"};
  const auto attend = [&] {
    for (int i = 0; i < kCalls; ++i) Attend(*engine, origin);
  };
  const auto captured = [&] {
    if (!engine->trace().Begin(absl::Now(), 10 * kCalls).ok()) std::abort();
    attend();
    engine->trace().End(absl::Now());
  };
  const auto for_tracing_alone = [&] {
    for (int i = 0; i < kCalls; ++i) {
      for (int copy = 0; copy < kCopies; ++copy) Keep(engine::TraceOrigin(origin));
      for (int look = 0; look < kLooks; ++look) {
        if (engine->trace().is_on()) std::abort();
      }
    }
  };
  const std::vector<bench::Summary> times = bench::TimeInTurn({attend, captured, for_tracing_alone}, 9, 2);
  const double off = times[0].median_seconds / kCalls;
  const double alone = times[2].median_seconds / kCalls;
  std::printf("a tiny Attend, nobody captures  %8.3f us\n", off * 1e6);
  std::printf("the same, captured              %8.3f us, %+.1f %%\n", times[1].median_seconds / kCalls * 1e6,
              100 * (times[1].median_seconds / times[0].median_seconds - 1));
  std::printf("for tracing alone, off          %8.3f us, %.2f %% of it\n", alone * 1e6, 100 * alone / off);
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace ridgeline

int main() { return ridgeline::Main(); }
