#include "server/engine/roofline.h"

#include <algorithm>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/device/buffer.h"
#include "server/engine/measure/device_trial.h"
#include "server/engine/roofline_cache.h"

namespace ridgeline::engine {
namespace {

using device::Buffer;
using device::Lane;
using kernels::DataType;

// A peak is the best of many: on a shared machine most samples are slowed by somebody else.
constexpr int kMinSamples = 5;
constexpr absl::Duration kMinTime = absl::Milliseconds(400);

// A copy must not fit the caches; four times the largest is far beyond, and 64 MiB where its size is unknown.
constexpr std::int64_t kMinCopyBytes = std::int64_t{64} << 20;
constexpr std::int64_t kMaxCopyBytes = std::int64_t{1} << 30;

// Large enough that packing and edges don't matter, small enough for a fraction of a second on one core; and large enough for
// many waves of blocks on every multiprocessor of a GPU, small enough for a budget of 1 GiB.
std::int64_t GemmSize(const device::DeviceInfo& info) {
  if (info.type == device::DeviceType::kCpu) return 1536;
  return info.memory_limit_bytes >= (std::int64_t{2} << 30) ? 8192 : 4096;
}

// The shortest of several runs of what `queue` puts on the lane; the first warms up.
absl::StatusOr<absl::Duration> MeasureShortest(Lane& lane, absl::FunctionRef<absl::Status()> queue) {
  absl::Duration shortest = absl::InfiniteDuration();
  absl::Duration total;
  for (int sample = 0; sample <= kMinSamples || total < kMinTime; ++sample) {
    RIDGELINE_ASSIGN_OR_RETURN(const absl::Duration elapsed, measure::TimeOnLane(lane, queue));
    if (elapsed <= absl::ZeroDuration()) return absl::InternalError("the device's clock does not advance");
    total += elapsed;
    if (sample > 0) shortest = std::min(shortest, elapsed);
  }
  return shortest;
}

std::int64_t CopyBytes(const device::DeviceInfo& info) {
  const std::int64_t wanted = std::clamp(4 * std::max(info.l2_cache_bytes, info.l3_cache_bytes), kMinCopyBytes, kMaxCopyBytes);
  return std::min(wanted, info.memory_limit_bytes / 4);
}

absl::StatusOr<double> MeasureBytesPerSecond(Lane& lane, const device::DeviceInfo& info) {
  const std::int64_t size_bytes = CopyBytes(info);
  const std::int64_t elements = size_bytes / kernels::ElementBytes(DataType::kFloat32);
  RIDGELINE_ASSIGN_OR_RETURN(const Buffer source, lane.UploadRandom(DataType::kFloat32, elements, /*seed=*/1, 0, 1));
  auto destination = lane.Allocate(size_bytes);
  const auto shortest = destination.ok() ? MeasureShortest(lane, [&] { return lane.Copy(*destination, source, size_bytes); })
                                         : absl::StatusOr<absl::Duration>(destination.status());
  RIDGELINE_RETURN_IF_ERROR(measure::AwaitLane(lane));
  RIDGELINE_RETURN_IF_ERROR(shortest.status());
  return 2 * static_cast<double>(size_bytes) / absl::ToDoubleSeconds(*shortest);
}

absl::StatusOr<double> MeasureFlopsPerSecond(Lane& lane, DataType type, std::int64_t size) {
  const std::int64_t elements = size * size;
  RIDGELINE_ASSIGN_OR_RETURN(const Buffer a, lane.UploadRandom(type, elements, /*seed=*/1, 0, 1));
  auto b = lane.UploadRandom(type, elements, /*seed=*/2, 0, 1);
  auto c = lane.Allocate(elements * kernels::ElementBytes(DataType::kFloat32));
  const absl::Status allocated = b.ok() ? c.status() : b.status();
  const auto shortest = allocated.ok() ? MeasureShortest(lane, [&] { return lane.Gemm(type, size, size, size, a, *b, *c); })
                                       : absl::StatusOr<absl::Duration>(allocated);
  RIDGELINE_RETURN_IF_ERROR(measure::AwaitLane(lane));
  RIDGELINE_RETURN_IF_ERROR(shortest.status());
  const double flops = 2.0 * static_cast<double>(elements) * static_cast<double>(size);
  return flops / absl::ToDoubleSeconds(*shortest);
}

double TheoreticalFlopsPerSecond(const device::DeviceInfo& info, DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return info.theoretical_float16_flops_per_second;
    case DataType::kBFloat16:
      return info.theoretical_bfloat16_flops_per_second;
    default:
      return info.theoretical_float32_flops_per_second;
  }
}

}  // namespace

const ComputeRoof* Roofline::FindComputeRoof(DataType data_type) const {
  const auto found = std::find_if(compute_roofs.begin(), compute_roofs.end(),
                                  [&](const ComputeRoof& roof) { return roof.data_type == data_type; });
  return found == compute_roofs.end() ? nullptr : &*found;
}

absl::StatusOr<Roofline> MeasureRoofline(device::Device& device) {
  const device::DeviceInfo& info = device.info();
  Lane& lane = device.lane(0);
  Roofline roofline;
  roofline.device = info.name;
  roofline.theoretical_bytes_per_second = info.theoretical_bytes_per_second;
  roofline.measure_time = base::SystemTime();
  RIDGELINE_ASSIGN_OR_RETURN(roofline.bytes_per_second, MeasureBytesPerSecond(lane, info));
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    RIDGELINE_ASSIGN_OR_RETURN(const double flops_per_second, MeasureFlopsPerSecond(lane, type, GemmSize(info)));
    roofline.compute_roofs.push_back({type, flops_per_second, TheoreticalFlopsPerSecond(info, type)});
  }
  // What measuring took is no cache for serving.
  device.EmptyMemoryCache();
  return roofline;
}

absl::StatusOr<Roofline> LoadOrMeasureRoofline(device::Device& device, const std::string& cache_path) {
  const std::string key = RooflineKey(device.info());
  if (!cache_path.empty()) {
    if (const absl::StatusOr<std::string> text = ReadRooflineFile(cache_path); text.ok()) {
      absl::StatusOr<Roofline> cached = ParseRoofline(*text, key);
      if (cached.ok()) return cached;
      base::Log(base::LogLevel::kInfo, "measuring the roofline anew",
                {{"path", cache_path}, {"reason", cached.status().message()}});
    }
  }
  RIDGELINE_ASSIGN_OR_RETURN(Roofline roofline, MeasureRoofline(device));
  if (!cache_path.empty()) {
    const absl::Status written = WriteRooflineFile(cache_path, FormatRoofline(key, roofline));
    if (!written.ok()) base::Log(base::LogLevel::kWarning, "roofline not kept", {{"reason", written.message()}});
  }
  return roofline;
}

}  // namespace ridgeline::engine
