#include "tests/fuzz/small_daemon.h"

#include "google/protobuf/stubs/logging.h"
#include "server/base/check.h"
#include "server/base/clock.h"
#include "server/base/error.h"
#include "server/device/cpu_device.h"
#include "server/engine/kv_cache/kv_cache_store.h"

namespace ridgeline::fuzz {

SmallDaemon& SmallDaemon::Get() {
  static SmallDaemon& daemon = *new SmallDaemon;
  static google::protobuf::LogSilencer silencer;  // invalid UTF-8 is no news here
  return daemon;
}

SmallDaemon::SmallDaemon() {
  auto made = device::CreateCpuDevice({.num_lanes = 2, .num_threads = 2, .memory_limit_bytes = std::int64_t{32} << 20});
  RIDGELINE_CHECK(made.ok());
  device_ = *std::move(made);
  engine_ = engine::CreateEngine({}, *device_, {}, metrics_, base::Clock::Real());
  engine::kv_cache::CreateCacheRequest cache{.cache_id = "c", .geometry = {}, .lease_duration = absl::Hours(24)};
  cache.geometry.data_type = kernels::DataType::kFloat32;
  cache.geometry.layers = cache.geometry.kv_heads = 2;
  cache.geometry.head_dim = 8;
  cache.geometry.capacity_pages = 64;
  RIDGELINE_CHECK(engine_->kv_caches().CreateCache({}, cache).ok());
  RIDGELINE_CHECK(engine_->kv_caches().CreateSequence({}, "kvCaches/c", "s").ok());
  num_idle_allocations_ = device_->memory_stats().allocation_count;
}

void SmallDaemon::CheckError(const absl::Status& status) {
  RIDGELINE_CHECK(!status.ok());
  RIDGELINE_CHECK(!base::ErrorReason(status).empty());
  RIDGELINE_CHECK(status.code() != absl::StatusCode::kInternal && status.code() != absl::StatusCode::kUnknown);
}

void SmallDaemon::CheckTensor(const engine::OutputTensor& tensor) {
  std::int64_t bytes = kernels::ElementBytes(tensor.data_type);
  for (const std::int64_t extent : tensor.shape) bytes *= extent;
  RIDGELINE_CHECK(bytes == (tensor.data == nullptr ? 0 : tensor.data->size_bytes()));
}

void SmallDaemon::WaitUntilIdle() {
  for (int i = 0; device_->memory_stats().allocation_count != num_idle_allocations_ || engine_->load().running_requests != 0;
       ++i) {
    RIDGELINE_CHECK(i < 5000);
    absl::SleepFor(absl::Milliseconds(1));
  }
}

Wire::Wire(const std::uint8_t* data, std::size_t size)
    : bytes_(std::make_shared<std::string>(reinterpret_cast<const char*>(data), size)) {
  if (size == 0) return;
  const auto whole = static_cast<std::int64_t>(size);
  const std::int64_t first = data[size - 1] % whole;
  slices_ = {{bytes_->data(), first}, {bytes_->data() + first, whole - first}};
}

}  // namespace ridgeline::fuzz
