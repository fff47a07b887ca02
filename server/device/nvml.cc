#include "server/device/nvml.h"

#include <array>
#include <cstdint>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"
#include "server/device/dynamic_library.h"

namespace ridgeline::device {
namespace {

// NVML's interface as far as it is used, from its reference manual ("NVML API Reference Guide"); its header comes with a
// toolkit only, and the library keeps these for good. Every function returns 0 on success.
using NvmlGpu = void*;
constexpr int kClockSm = 1;
constexpr int kClockMemory = 2;
constexpr int kTemperatureGpu = 0;
constexpr int kEccCorrected = 0;
constexpr int kEccUncorrected = 1;
constexpr int kEccSinceDriverLoad = 0;         // "volatile"
constexpr int kTimeout = 10;                   // NVML_ERROR_TIMEOUT
constexpr unsigned long long kXidEvent = 0x8;  // nvmlEventTypeXidCriticalError
constexpr int kTextBytes = 96;                 // NVML_DEVICE_UUID_V2_BUFFER_SIZE; longer than a driver version

// nvmlUtilization_t, in percent.
struct Utilization {
  unsigned gpu;
  unsigned memory;
};

// nvmlEventData_t.
struct EventData {
  NvmlGpu gpu;
  unsigned long long type;
  unsigned long long data;  // of an Xid event: the Xid
  unsigned gpu_instance_id;
  unsigned compute_instance_id;
};

struct ThrottleBit {
  unsigned long long bit;
  const char* reason;
};

// nvmlClocksThrottleReason*, in the order of kThrottleReasons. 0x1, idle, is left out.
constexpr ThrottleBit kThrottleBits[] = {{0x2, kThrottleReasons[0]},  {0x4, kThrottleReasons[1]},  {0x8, kThrottleReasons[2]},
                                         {0x10, kThrottleReasons[3]}, {0x20, kThrottleReasons[4]}, {0x40, kThrottleReasons[5]},
                                         {0x80, kThrottleReasons[6]}, {0x100, kThrottleReasons[7]}};
static_assert(std::size(kThrottleBits) == std::size(kThrottleReasons), "each reason has its bit");

template <typename To, typename From, typename Function, typename... Arguments>
std::optional<To> Ask(Function* function, Arguments... arguments) {
  From answer = {};
  if (function(arguments..., &answer) != 0) return std::nullopt;
  return static_cast<To>(answer);
}

std::optional<double> AskWatts(int (*function)(NvmlGpu, unsigned*), NvmlGpu gpu) {
  const std::optional<double> milliwatts = Ask<double, unsigned>(function, gpu);
  return milliwatts.has_value() ? std::optional<double>(*milliwatts / 1000) : std::nullopt;
}

}  // namespace

struct Nvml::Api {
  int (*init)();
  int (*shutdown)();
  int (*gpu_by_pci_bus_id)(const char*, NvmlGpu*);
  int (*uuid)(NvmlGpu, char*, unsigned);
  int (*driver_version)(char*, unsigned);
  int (*clock_mhz)(NvmlGpu, int, unsigned*);
  int (*power_milliwatts)(NvmlGpu, unsigned*);
  int (*power_limit_milliwatts)(NvmlGpu, unsigned*);
  int (*temperature_celsius)(NvmlGpu, int, unsigned*);
  int (*ecc_errors)(NvmlGpu, int, int, unsigned long long*);
  int (*throttle_reasons)(NvmlGpu, unsigned long long*);
  int (*utilization)(NvmlGpu, Utilization*);
  int (*create_event_set)(void**);
  int (*register_events)(NvmlGpu, unsigned long long, void*);
  int (*wait_for_event)(void*, EventData*, unsigned);
  int (*free_event_set)(void*);

  absl::Status Load(const DynamicLibrary& library) {
    RIDGELINE_RETURN_IF_ERROR(library.Find("nvmlInit_v2", init));
    RIDGELINE_RETURN_IF_ERROR(library.Find("nvmlShutdown", shutdown));
    RIDGELINE_RETURN_IF_ERROR(library.Find("nvmlDeviceGetHandleByPciBusId_v2", gpu_by_pci_bus_id));
    RIDGELINE_RETURN_IF_ERROR(library.Find("nvmlDeviceGetUUID", uuid));
    RIDGELINE_RETURN_IF_ERROR(library.Find("nvmlSystemGetDriverVersion", driver_version));
    RIDGELINE_RETURN_IF_ERROR(library.Find("nvmlDeviceGetClockInfo", clock_mhz));
    RIDGELINE_RETURN_IF_ERROR(library.Find("nvmlDeviceGetPowerUsage", power_milliwatts));
    RIDGELINE_RETURN_IF_ERROR(library.Find("nvmlDeviceGetEnforcedPowerLimit", power_limit_milliwatts));
    RIDGELINE_RETURN_IF_ERROR(library.Find("nvmlDeviceGetTemperature", temperature_celsius));
    RIDGELINE_RETURN_IF_ERROR(library.Find("nvmlDeviceGetTotalEccErrors", ecc_errors));
    RIDGELINE_RETURN_IF_ERROR(library.Find("nvmlDeviceGetUtilizationRates", utilization));
    RIDGELINE_RETURN_IF_ERROR(library.Find("nvmlEventSetCreate", create_event_set));
    RIDGELINE_RETURN_IF_ERROR(library.Find("nvmlDeviceRegisterEvents", register_events));
    RIDGELINE_RETURN_IF_ERROR(library.Find("nvmlEventSetWait_v2", wait_for_event));
    RIDGELINE_RETURN_IF_ERROR(library.Find("nvmlEventSetFree", free_event_set));
    return library.Find("nvmlDeviceGetCurrentClocksThrottleReasons", throttle_reasons);
  }
};

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Create(const std::string& pci_bus_id, const std::string& library) {
  RIDGELINE_ASSIGN_OR_RETURN(const DynamicLibrary loaded, DynamicLibrary::Open(library));
  auto api = std::make_unique<Api>();
  RIDGELINE_RETURN_IF_ERROR(api->Load(loaded));
  if (const int error = api->init(); error != 0) return absl::UnavailableError(absl::StrCat("nvmlInit failed: ", error));
  NvmlGpu gpu = nullptr;
  if (const int error = api->gpu_by_pci_bus_id(pci_bus_id.c_str(), &gpu); error != 0) {
    api->shutdown();
    return absl::UnavailableError(absl::StrCat("NVML finds no GPU at ", pci_bus_id, ": ", error));
  }
  return absl::WrapUnique(new Nvml(std::move(api), gpu));
}

Nvml::Nvml(std::unique_ptr<const Api> api, void* gpu) : api_(std::move(api)), gpu_(gpu) {
  if (api_->create_event_set(&events_) != 0) {
    events_ = nullptr;
  } else if (api_->register_events(gpu_, kXidEvent, events_) != 0) {
    api_->free_event_set(std::exchange(events_, nullptr));
  }
}

Nvml::~Nvml() {
  if (events_ != nullptr) api_->free_event_set(events_);
  api_->shutdown();
}

GpuStatus Nvml::Read() const {
  GpuStatus status;
  std::array<char, kTextBytes> text;
  if (api_->uuid(gpu_, text.data(), text.size()) == 0) status.uuid = text.data();
  if (api_->driver_version(text.data(), text.size()) == 0) status.driver_version = text.data();
  status.sm_clock_mhz = Ask<int, unsigned>(api_->clock_mhz, gpu_, kClockSm);
  status.memory_clock_mhz = Ask<int, unsigned>(api_->clock_mhz, gpu_, kClockMemory);
  status.power_watts = AskWatts(api_->power_milliwatts, gpu_);
  status.power_limit_watts = AskWatts(api_->power_limit_milliwatts, gpu_);
  status.temperature_celsius = Ask<int, unsigned>(api_->temperature_celsius, gpu_, kTemperatureGpu);
  status.corrected_ecc_errors =
      Ask<std::int64_t, unsigned long long>(api_->ecc_errors, gpu_, kEccCorrected, kEccSinceDriverLoad);
  status.uncorrected_ecc_errors =
      Ask<std::int64_t, unsigned long long>(api_->ecc_errors, gpu_, kEccUncorrected, kEccSinceDriverLoad);
  const auto mask = Ask<unsigned long long, unsigned long long>(api_->throttle_reasons, gpu_);
  if (mask.has_value()) status.throttle_reasons = ThrottleReasons(*mask);
  const auto utilization = Ask<Utilization, Utilization>(api_->utilization, gpu_);
  if (utilization.has_value()) status.utilization = utilization->gpu / 100.0;
  ReadXids(status);
  return status;
}

void Nvml::ReadXids(GpuStatus& status) const {
  base::MutexLock lock(&mutex_);
  if (events_ == nullptr) return;
  // Any error but a timeout: it can't be told, e.g. of a GPU that is gone.
  EventData event = {};
  int error = 0;
  while ((error = api_->wait_for_event(events_, &event, /*timeout_ms=*/0)) == 0) {
    if (event.type != kXidEvent) continue;
    ++xid_errors_;
    last_xid_ = static_cast<std::int64_t>(event.data);
  }
  if (error != kTimeout) return;
  status.xid_errors = xid_errors_;
  status.last_xid = last_xid_;
}

std::vector<std::string> ThrottleReasons(unsigned long long mask) {
  std::vector<std::string> reasons;
  for (const ThrottleBit& throttle : kThrottleBits) {
    if ((mask & throttle.bit) != 0) reasons.emplace_back(throttle.reason);
  }
  return reasons;
}

}  // namespace ridgeline::device
