// The Attend path without a socket: bytes to message to validation to a small CPU device and back. What must hold for any
// bytes: exactly one answer; an accepted one has the sizes that its shape says; an error has a reason and is never INTERNAL;
// all memory comes back.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "google/protobuf/stubs/logging.h"
#include "ridgeline/v1/attention.pb.h"
#include "server/api/attend_converter.h"
#include "server/base/check.h"
#include "server/base/clock.h"
#include "server/base/error.h"
#include "server/base/metrics.h"
#include "server/base/notification.h"
#include "server/device/cpu_device.h"
#include "server/engine/engine.h"
#include "server/engine/kv_cache/kv_cache_store.h"

namespace ridgeline {
namespace {

// A random tensor of few bytes may be much work: it is given this long, then cancelled, which is worth fuzzing too.
constexpr absl::Duration kPatience = absl::Milliseconds(100);

struct Daemon {
  base::MetricsRegistry metrics;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<engine::Engine> engine;

  Daemon() {
    auto made = device::CreateCpuDevice({.num_lanes = 2, .num_threads = 2, .memory_limit_bytes = std::int64_t{32} << 20});
    RIDGELINE_CHECK(made.ok());
    device = *std::move(made);
    engine = engine::CreateEngine({}, *device, {}, metrics, base::Clock::Real());
    // Of the cache and the sequence that the seeds name.
    engine::kv_cache::CreateCacheRequest cache{.cache_id = "c", .geometry = {}, .lease_duration = absl::Hours(24)};
    cache.geometry.data_type = kernels::DataType::kFloat32;
    cache.geometry.layers = cache.geometry.kv_heads = 2;
    cache.geometry.head_dim = 8;
    cache.geometry.capacity_pages = 64;
    RIDGELINE_CHECK(engine->kv_caches().CreateCache({}, cache).ok());
    RIDGELINE_CHECK(engine->kv_caches().CreateSequence({}, "kvCaches/c", "s").ok());
    num_idle_allocations = device->memory_stats().allocation_count;
  }

  std::int64_t num_idle_allocations;  // the cache's
};

void CheckTensor(const std::optional<engine::OutputTensor>& tensor) {
  if (!tensor.has_value()) return;
  std::int64_t bytes = kernels::ElementBytes(tensor->data_type);
  for (const std::int64_t extent : tensor->shape) bytes *= extent;
  RIDGELINE_CHECK(bytes == (tensor->data == nullptr ? 0 : tensor->data->size_bytes()));
}

void CheckError(const absl::Status& status) {
  RIDGELINE_CHECK(!status.ok());
  RIDGELINE_CHECK(!base::ErrorReason(status).empty());
  RIDGELINE_CHECK(status.code() != absl::StatusCode::kInternal && status.code() != absl::StatusCode::kUnknown);
}

void CheckAnswer(const absl::StatusOr<engine::AttendResult>& result) {
  if (!result.ok()) {
    CheckError(result.status());
    return;
  }
  CheckTensor(result->output);
  CheckTensor(result->log_sum_exp);
}

void Attend(Daemon& daemon, engine::AttendRequest request) {
  base::Notification answered;
  const std::shared_ptr<engine::Call> call =
      daemon.engine->Attend(std::move(request), {}, [&](const absl::StatusOr<engine::AttendResult>& result) {
        CheckAnswer(result);
        answered.Notify();  // a second answer aborts here
      });
  if (!answered.WaitWithTimeout(kPatience)) {
    call->Cancel();
    answered.Wait();
  }
  // The next input starts from an idle, empty device.
  for (int i = 0; daemon.device->memory_stats().allocation_count != daemon.num_idle_allocations ||
                  daemon.engine->load().running_requests != 0;
       ++i) {
    RIDGELINE_CHECK(i < 5000);
    absl::SleepFor(absl::Milliseconds(1));
  }
}

// The last byte says where the bytes are cut in two, as if they had come in two pieces.
std::vector<device::HostSlice> Cut(const std::string& bytes) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (size == 0) return {};
  const std::int64_t first = static_cast<unsigned char>(bytes.back()) % size;
  return {{bytes.data(), first}, {bytes.data() + first, size - first}};
}

}  // namespace
}  // namespace ridgeline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static ridgeline::Daemon& daemon = *new ridgeline::Daemon;  // lives as long as the process
  static google::protobuf::LogSilencer silencer;              // invalid UTF-8 is no news here
  const auto bytes = std::make_shared<std::string>(reinterpret_cast<const char*>(data), size);
  absl::StatusOr<ridgeline::engine::AttendRequest> request = ridgeline::api::ParseAttendRequest(ridgeline::Cut(*bytes), bytes);
  if (!request.ok()) {
    ridgeline::CheckError(request.status());
    return 0;
  }
  ridgeline::Attend(daemon, *std::move(request));
  return 0;
}
