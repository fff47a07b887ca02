#include "tests/gpu/gpu.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention/plan.h"
#include "kernels/common/cublas.h"
#include "kernels/common/cuda_status.h"
#include "server/device/cublas_library.h"

namespace ridgeline::gpu {
namespace {

constexpr std::byte kPoison{0xff};
constexpr std::int64_t kGuardBytes = 512;
constexpr std::int64_t kCublasWorkspaceBytes = 32 << 20;  // what cuBLAS asks for on Hopper

[[noreturn]] void Die(const std::string& reason) {
  std::fprintf(stderr, "%s\n", reason.c_str());
  std::exit(1);
}

int Attribute(cudaDeviceAttr attribute) {
  int value = 0;
  Check(cudaDeviceGetAttribute(&value, attribute, 0), "cudaDeviceGetAttribute");
  return value;
}

kernels::attention::CudaLimits ReadLimits() {
  return {
      .compute_capability = 10 * Attribute(cudaDevAttrComputeCapabilityMajor) + Attribute(cudaDevAttrComputeCapabilityMinor),
      .num_sms = Attribute(cudaDevAttrMultiProcessorCount),
      .shared_memory_bytes_per_sm = Attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor),
      .shared_memory_bytes_per_block = Attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin),
      .l2_cache_bytes = Attribute(cudaDevAttrL2CacheSize)};
}

kernels::CublasFunctions LoadCublas() {
  absl::StatusOr<kernels::CublasFunctions> functions = device::LoadCublas();
  if (!functions.ok()) Die(std::string("standard attention needs cuBLAS: ") + std::string(functions.status().message()));
  return *functions;
}

kernels::Cublas CreateCublas() {
  static const kernels::CublasFunctions functions = LoadCublas();
  kernels::Cublas cublas{.functions = &functions, .handle = nullptr};
  void* workspace = nullptr;
  Check(functions.create(&cublas.handle), "cublasCreate");
  Check(functions.set_stream(cublas.handle, Stream()), "cublasSetStream");
  Check(cudaMalloc(&workspace, kCublasWorkspaceBytes), "cudaMalloc");
  Check(functions.set_workspace(cublas.handle, workspace, kCublasWorkspaceBytes), "cublasSetWorkspace");
  return cublas;
}

cudaStream_t CreateStream() {
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  // Freed memory stays with the pool: a test of thousands of small cases asks the driver once.
  cudaMemPool_t pool = nullptr;
  std::uint64_t kept_bytes = std::uint64_t{1} << 30;
  Check(cudaDeviceGetDefaultMemPool(&pool, 0), "cudaDeviceGetDefaultMemPool");
  Check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept_bytes), "cudaMemPoolSetAttribute");
  return stream;
}

bool BareMemory() {
  static const bool bare = std::getenv("RIDGELINE_TEST_BARE_MEMORY") != nullptr;
  return bare;
}

void Wait() { Check(cudaStreamSynchronize(Stream()), "cudaStreamSynchronize"); }

}  // namespace

std::string WhyNoGpu() {
  int num_devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&num_devices);
  if (error != cudaSuccess) return std::string("no GPU: ") + cudaGetErrorString(error);
  return num_devices > 0 ? "" : "no GPU: the driver knows of none";
}

std::string Describe(kernels::CudaStatus status) {
  if (status.cuda != cudaSuccess) return cudaGetErrorString(status.cuda);
  return status.ok() ? "no error" : "cuBLAS status " + std::to_string(status.cublas);
}

void Check(kernels::CudaStatus status, const char* call) {
  if (!status.ok()) Die(std::string(call) + ": " + Describe(status));
}

cudaStream_t Stream() {
  static const cudaStream_t stream = CreateStream();
  return stream;
}

const kernels::Cublas& Cublas() {
  static const kernels::Cublas cublas = CreateCublas();
  return cublas;
}

const kernels::attention::CudaLimits& Limits() {
  static const kernels::attention::CudaLimits limits = ReadLimits();
  return limits;
}

std::int64_t FreeMemoryBytes() {
  std::size_t free_bytes = 0, total_bytes = 0;
  Check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  return static_cast<std::int64_t>(free_bytes);
}

GuardedDeviceArray::GuardedDeviceArray(std::int64_t size_bytes) : size_bytes_(size_bytes) {
  void* memory = nullptr;
  if (BareMemory()) {
    if (size_bytes > 0) Check(cudaMalloc(&memory, size_bytes), "cudaMalloc");
    memory_ = data_ = static_cast<std::byte*>(memory);
    return;
  }
  const std::int64_t all_bytes = size_bytes + 2 * kGuardBytes;
  Check(cudaMallocAsync(&memory, all_bytes, Stream()), "cudaMallocAsync");
  Check(cudaMemsetAsync(memory, static_cast<int>(kPoison), all_bytes, Stream()), "cudaMemsetAsync");
  memory_ = static_cast<std::byte*>(memory);
  data_ = memory_ + kGuardBytes;
}

GuardedDeviceArray::~GuardedDeviceArray() {
  // After a kernel's fault every call fails; the test has said so already.
  if (BareMemory()) {
    (void)cudaFree(memory_);
  } else {
    (void)cudaFreeAsync(memory_, Stream());
  }
}

void GuardedDeviceArray::Upload(const void* host) {
  if (size_bytes_ == 0) return;
  Check(cudaMemcpyAsync(data_, host, size_bytes_, cudaMemcpyHostToDevice, Stream()), "upload");
}

void GuardedDeviceArray::Download(void* host) const {
  if (size_bytes_ == 0) return;
  Check(cudaMemcpyAsync(host, data_, size_bytes_, cudaMemcpyDeviceToHost, Stream()), "download");
  Wait();
}

bool GuardedDeviceArray::Holds(const void* host) const {
  std::vector<std::byte> bytes(size_bytes_);
  Download(bytes.data());
  return std::equal(bytes.begin(), bytes.end(), static_cast<const std::byte*>(host));
}

bool GuardedDeviceArray::guards_whole() const {
  if (BareMemory()) return true;
  std::byte guards[2 * kGuardBytes];
  Check(cudaMemcpyAsync(guards, memory_, kGuardBytes, cudaMemcpyDeviceToHost, Stream()), "download");
  Check(cudaMemcpyAsync(guards + kGuardBytes, data_ + size_bytes_, kGuardBytes, cudaMemcpyDeviceToHost, Stream()), "download");
  Wait();
  return std::ranges::all_of(guards, [](std::byte byte) { return byte == kPoison; });
}

}  // namespace ridgeline::gpu
