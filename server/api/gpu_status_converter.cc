#include "server/api/gpu_status_converter.h"

#include <string>

namespace ridgeline::api {

void Convert(const device::GpuStatus& status, v1::GpuStatus& message) {
  message.set_uuid(status.uuid);
  message.set_driver_version(status.driver_version);
  if (status.sm_clock_mhz) message.set_sm_clock_mhz(*status.sm_clock_mhz);
  if (status.memory_clock_mhz) message.set_memory_clock_mhz(*status.memory_clock_mhz);
  if (status.power_watts) message.set_power_watts(*status.power_watts);
  if (status.power_limit_watts) message.set_power_limit_watts(*status.power_limit_watts);
  if (status.temperature_celsius) message.set_temperature_celsius(*status.temperature_celsius);
  if (status.corrected_ecc_errors) message.set_corrected_ecc_errors(*status.corrected_ecc_errors);
  if (status.uncorrected_ecc_errors) message.set_uncorrected_ecc_errors(*status.uncorrected_ecc_errors);
  if (!status.throttle_reasons) return;
  for (const std::string& reason : *status.throttle_reasons) message.add_throttle_reasons(reason);
}

}  // namespace ridgeline::api
