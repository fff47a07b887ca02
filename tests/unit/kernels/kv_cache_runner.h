// Runs kv_cache kernels on memory of the device of whichever kv_cache_runner_*.cc the program links: one suite judges every
// device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/kv_cache/kv_cache.h"

namespace ridgeline::kernels::kv_cache {

// Memory of the device between guards, aligned to at least 16 bytes.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::span<const std::byte> bytes);
  ~DeviceBytes();

  template <typename T>
  T* as() const {
    return static_cast<T*>(data());
  }

  bool Hold(std::span<const std::byte> bytes) const;
  bool guards_whole() const;

 private:
  void* data() const;

  struct Memory;
  std::unique_ptr<Memory> memory_;
};

// Each waits until the work is done. What `params` points to is memory of the device.
void RunAppend(const AppendParams& params);
void RunGather(const GatherParams& params);
void RunCopyPages(const CopyPagesParams& params);

}  // namespace ridgeline::kernels::kv_cache
