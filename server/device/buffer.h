// Memory handed out by a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace ridgeline::device {

// Takes back what it handed out; implemented by allocators. Thread-safe.
class BufferOwner {
 public:
  // `handle` is what the buffer was made with.
  virtual void Free(void* handle) = 0;

 protected:
  ~BufferOwner() = default;
};

// Owns device memory, aligned to 512 bytes, uninitialised. Move-only; the destructor gives the memory back to the pool that it
// came from without waiting. A lane's: work queued later on the same lane may get it at once, so whoever queued work that uses
// it keeps it until that work has completed, or only frees it on the same lane. A device's (Device::Allocate): anyone may get
// it at once. Must not outlive its device.
class Buffer {
 public:
  Buffer() = default;
  // `handle` is how the owner knows the memory.
  Buffer(BufferOwner* owner, void* handle, void* data, std::int64_t size_bytes)
      : owner_(owner), handle_(handle), data_(data), size_bytes_(size_bytes) {}
  Buffer(BufferOwner* owner, void* data, std::int64_t size_bytes) : Buffer(owner, data, data, size_bytes) {}
  Buffer(Buffer&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)),
        handle_(std::exchange(other.handle_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer taken(std::move(other));
    std::swap(owner_, taken.owner_);
    std::swap(handle_, taken.handle_);
    std::swap(data_, taken.data_);
    std::swap(size_bytes_, taken.size_bytes_);
    return *this;
  }
  ~Buffer() {
    if (owner_ != nullptr) owner_->Free(handle_);
  }

  void* data() const { return data_; }                     // null if size_bytes() is 0; a host pointer on the CPU device only
  std::int64_t size_bytes() const { return size_bytes_; }  // as asked for, before rounding

 private:
  BufferOwner* owner_ = nullptr;
  void* handle_ = nullptr;
  void* data_ = nullptr;
  std::int64_t size_bytes_ = 0;
};

// Host memory that the device wrote, e.g. a result. Shared: a response that is still being sent keeps it alive.
class HostBuffer {
 public:
  virtual ~HostBuffer() = default;

  virtual const void* data() const = 0;
  virtual std::int64_t size_bytes() const = 0;
};

// A result that lies in an allocator's host memory, until the last who reads it lets go.
class AllocatedHostBuffer final : public HostBuffer {
 public:
  explicit AllocatedHostBuffer(Buffer buffer) : buffer_(std::move(buffer)) {}

  const void* data() const override { return buffer_.data(); }
  std::int64_t size_bytes() const override { return buffer_.size_bytes(); }

 private:
  const Buffer buffer_;
};

// A part of another result, which it keeps alive: what one of several requests gets of a launch that they shared.
class HostBufferPart final : public HostBuffer {
 public:
  // `size_bytes` from `begin_bytes` on lie within `whole`.
  HostBufferPart(std::shared_ptr<const HostBuffer> whole, std::int64_t begin_bytes, std::int64_t size_bytes)
      : whole_(std::move(whole)), begin_bytes_(begin_bytes), size_bytes_(size_bytes) {}

  const void* data() const override { return static_cast<const char*>(whole_->data()) + begin_bytes_; }
  std::int64_t size_bytes() const override { return size_bytes_; }

 private:
  const std::shared_ptr<const HostBuffer> whole_;
  const std::int64_t begin_bytes_;
  const std::int64_t size_bytes_;
};

// Host memory owned by somebody else.
struct HostSlice {
  const void* data;
  std::int64_t size_bytes;
};

}  // namespace ridgeline::device
