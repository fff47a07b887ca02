// The daemon's command line, checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/api/grpc_server.h"
#include "server/base/log.h"
#include "server/device/cpu_device.h"
#include "server/device/cuda_device.h"
#include "server/device/select_device.h"
#include "server/engine/engine.h"

namespace ridgeline {

struct DaemonConfig {
  device::DeviceRequest device;
  device::CpuDeviceOptions cpu;
  device::CudaDeviceOptions cuda;
  engine::EngineOptions engine;
  api::GrpcServerOptions grpc;
  std::string metrics_address;  // empty: no metrics port
  std::string roofline_cache;   // path; empty: measure at each start
  absl::Duration session_drain_timeout;
  absl::Duration drain_timeout;
  base::LogLevel log_level = base::LogLevel::kInfo;
  base::LogFormat log_format = base::LogFormat::kText;
};

// Reads the flags after absl::ParseCommandLine. INVALID_ARGUMENT names the flag, what it was and what is allowed.
absl::StatusOr<DaemonConfig> ReadFlags();

}  // namespace ridgeline
