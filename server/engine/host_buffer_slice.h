// A part of a result in host memory, as one of the requests that shared the launch gets it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/device/buffer.h"

namespace ridgeline::engine {

// The whole lives until the last of its slices has gone.
class HostBufferSlice final : public device::HostBuffer {
 public:
  HostBufferSlice(std::shared_ptr<const device::HostBuffer> whole, std::int64_t begin_bytes, std::int64_t size_bytes)
      : whole_(std::move(whole)), begin_bytes_(begin_bytes), size_bytes_(size_bytes) {}

  const void* data() const override { return static_cast<const std::byte*>(whole_->data()) + begin_bytes_; }
  std::int64_t size_bytes() const override { return size_bytes_; }

 private:
  const std::shared_ptr<const device::HostBuffer> whole_;
  const std::int64_t begin_bytes_;
  const std::int64_t size_bytes_;
};

}  // namespace ridgeline::engine
