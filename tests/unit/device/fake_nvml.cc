// A library with NVML's names, for tests: one GPU whose readings are fixed, and two Xids that wait to be told.
#include <cstddef>
#include <cstring>

namespace {

int gpu;
int event_set;
int num_events = 2;

struct Utilization {
  unsigned gpu, memory;
};

struct EventData {
  void* gpu;
  unsigned long long type, data;
  unsigned gpu_instance_id, compute_instance_id;
};

constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kTimeout = 10;

int Copy(const char* text, char* to, unsigned size) {
  if (std::strlen(text) >= size) return kInvalidArgument;
  std::strcpy(to, text);
  return 0;
}

template <typename T>
int Give(T value, T* to) {
  *to = value;
  return 0;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  return std::strcmp(bus_id, "0000:1b:00.0") == 0 ? Give<void*>(&gpu, device) : kInvalidArgument;
}
int nvmlDeviceGetUUID(void*, char* uuid, unsigned size) { return Copy("GPU-fake", uuid, size); }
int nvmlSystemGetDriverVersion(char* version, unsigned size) { return Copy("580.0", version, size); }
int nvmlDeviceGetClockInfo(void*, int clock, unsigned* mhz) { return Give(clock == 1 ? 1980u : 3201u, mhz); }
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) { return Give(350'500u, milliwatts); }
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned*) { return kNotSupported; }
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) { return Give(41u, celsius); }
int nvmlDeviceGetTotalEccErrors(void*, int kind, int, unsigned long long* errors) {
  return Give(kind == 0 ? 7ull : 1ull, errors);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) { return Give(0x4ull, reasons); }
int nvmlDeviceGetUtilizationRates(void*, Utilization* rates) { return Give(Utilization{25, 3}, rates); }
int nvmlEventSetCreate(void** set) { return Give<void*>(&event_set, set); }
int nvmlEventSetFree(void* set) { return set == &event_set ? 0 : kInvalidArgument; }
int nvmlDeviceRegisterEvents(void* device, unsigned long long types, void* set) {
  return device == &gpu && types == 0x8 && set == &event_set ? 0 : kInvalidArgument;
}
int nvmlEventSetWait_v2(void*, EventData* event, unsigned) {
  if (num_events == 0) return kTimeout;
  return Give(EventData{&gpu, 0x8, num_events-- == 2 ? 63ull : 79ull, 0, 0}, event);
}

}  // extern "C"
