// `ridgeline device`
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/cli/arguments.h"
#include "client/cli/commands.h"
#include "client/cli/measurement.h"

namespace ridgeline::cli {
namespace {

Value BytesIfKnown(std::int64_t bytes) { return bytes == 0 ? Value() : Value(bytes, Unit::kBytes); }
Value RateIfKnown(double rate, Unit unit) { return rate == 0 ? Value() : Value(rate, unit); }
Value Share(double measured, double theoretical) {
  return theoretical == 0 ? Value() : Value(measured / theoretical, Unit::kFraction);
}

std::string DeviceTypeName(v1::DeviceType type) {
  switch (type) {
    case v1::DEVICE_TYPE_CPU:
      return "CPU";
    case v1::DEVICE_TYPE_CUDA:
      return "CUDA";
    default:
      return v1::DeviceType_Name(type);
  }
}

Section DeviceSection(const v1::Device& device) {
  return {"Device",
          {{"name", "name", device.name()},
           {"type", "type", DeviceTypeName(device.type())},
           {"selection_reason", "why this device", device.selection_reason()},
           {"compute_units", device.type() == v1::DEVICE_TYPE_CUDA ? "multiprocessors" : "worker threads",
            std::int64_t{device.compute_units()}},
           {"instruction_set", "instruction set", device.instruction_set()},
           {"lanes", "lanes", std::int64_t{device.lanes()}},
           {"memory_bytes", "memory", BytesIfKnown(device.memory_bytes())},
           {"memory_limit_bytes", "memory limit", BytesIfKnown(device.memory_limit_bytes())},
           {"l1_cache_bytes", "L1 data cache", BytesIfKnown(device.l1_cache_bytes())},
           {"l2_cache_bytes", "L2 cache", BytesIfKnown(device.l2_cache_bytes())},
           {"l3_cache_bytes", "L3 cache", BytesIfKnown(device.l3_cache_bytes())}}};
}

// A field that the GPU's monitoring may not tell.
template <typename Number>
Field Reading(const char* key, const char* label, bool is_known, Number value) {
  return {key, label, is_known ? Value(value) : Value()};
}

Section GpuSection(const v1::GpuStatus& gpu) {
  return {"GPU",
          {{"uuid", "UUID", gpu.uuid()},
           {"driver_version", "driver", gpu.driver_version()},
           Reading("sm_clock_mhz", "SM clock, MHz", gpu.has_sm_clock_mhz(), std::int64_t{gpu.sm_clock_mhz()}),
           Reading("memory_clock_mhz", "memory clock, MHz", gpu.has_memory_clock_mhz(), std::int64_t{gpu.memory_clock_mhz()}),
           Reading("power_watts", "power, W", gpu.has_power_watts(), gpu.power_watts()),
           Reading("power_limit_watts", "power limit, W", gpu.has_power_limit_watts(), gpu.power_limit_watts()),
           Reading("temperature_celsius", "temperature, °C", gpu.has_temperature_celsius(),
                   std::int64_t{gpu.temperature_celsius()}),
           Reading("corrected_ecc_errors", "ECC errors corrected", gpu.has_corrected_ecc_errors(), gpu.corrected_ecc_errors()),
           Reading("uncorrected_ecc_errors", "ECC errors not corrected", gpu.has_uncorrected_ecc_errors(),
                   gpu.uncorrected_ecc_errors()),
           {"throttle_reasons", "clocks held down by",
            gpu.throttle_reasons_size() == 0 ? "nothing" : absl::StrJoin(gpu.throttle_reasons(), ", ")}}};
}

Section ServerSection(const v1::Device& device) {
  const absl::Duration uptime = absl::Seconds(device.uptime().seconds());
  return {"Daemon",
          {{"server_version", "version", device.server_version()},
           {"instance_id", "instance", device.instance_id()},
           {"uptime_seconds", "up for", {absl::ToInt64Seconds(uptime), Unit::kSeconds}}}};
}

Section RooflineSection(const v1::Roofline& roofline) {
  const absl::Time measured = absl::FromUnixSeconds(roofline.measure_time().seconds());
  return {"Roofline",
          {{"bytes_per_second", "bandwidth", RateIfKnown(roofline.bytes_per_second(), Unit::kBytesPerSecond)},
           {"theoretical_bytes_per_second", "in theory",
            RateIfKnown(roofline.theoretical_bytes_per_second(), Unit::kBytesPerSecond)},
           {"measure_time", "measured at", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", measured, absl::UTCTimeZone())},
           {"cached", "from the cache file", roofline.cached()}}};
}

Rows RoofRows(const v1::Roofline& roofline) {
  Rows rows{"compute_roofs",
            {{"data_type", "elements"},
             {"flops_per_second", "measured"},
             {"theoretical_flops_per_second", "in theory"},
             {"theoretical_fraction", "reached"},
             {"ridge_point_flops_per_byte", "ridge point"}},
            {}};
  for (const v1::ComputeRoof& roof : roofline.compute_roofs()) {
    rows.values.push_back({DataTypeName(roof.data_type()), RateIfKnown(roof.flops_per_second(), Unit::kFlopsPerSecond),
                           RateIfKnown(roof.theoretical_flops_per_second(), Unit::kFlopsPerSecond),
                           Share(roof.flops_per_second(), roof.theoretical_flops_per_second()),
                           RateIfKnown(roof.ridge_point_flops_per_byte(), Unit::kFlopsPerByte)});
  }
  return rows;
}

}  // namespace

absl::StatusOr<Result> RunDevice(const client::Client& client) {
  const absl::StatusOr<v1::Device> device = client.GetDevice();
  if (!device.ok()) return device.status();
  const absl::StatusOr<v1::Roofline> roofline = client.GetRoofline();
  if (!roofline.ok()) return roofline.status();

  Result result;
  result.document.sections = {DeviceSection(*device), ServerSection(*device), RooflineSection(*roofline)};
  if (device->has_gpu()) result.document.sections.insert(result.document.sections.begin() + 1, GpuSection(device->gpu()));
  result.document.rows = RoofRows(*roofline);
  result.document.notes = {"Work of an intensity below its ridge point is bound by memory, above it by arithmetic."};
  return result;
}

}  // namespace ridgeline::cli
