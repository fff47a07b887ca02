// A memory source with nothing behind its addresses: allocators must never look. Counts its calls, and fails those it is told
// to.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "server/device/memory_source.h"

namespace ridgeline::device {

// Never hands out an address twice. Expects that all comes back, as it was taken.
class FakeMemory final : public MemorySource, public GrowingMemory {
 public:
  explicit FakeMemory(bool can_grow) : can_grow_(can_grow) {}
  ~FakeMemory() override {
    EXPECT_TRUE(mapped_.empty());
    EXPECT_TRUE(reserved_.empty());
  }

  absl::StatusOr<void*> Map(std::int64_t size_bytes) override {
    if (absl::Status status = Take(size_bytes); !status.ok()) return status;
    char* const data = NewAddresses(size_bytes);
    mapped_[data] = size_bytes;
    return data;
  }
  void Unmap(void* data, std::int64_t size_bytes) override { UnmapChunk(data, size_bytes); }
  GrowingMemory* growing() override { return can_grow_ ? this : nullptr; }

  absl::StatusOr<void*> ReserveAddresses(std::int64_t size_bytes) override {
    if (FailsNow()) return absl::ResourceExhaustedError("no addresses");
    char* const data = NewAddresses(size_bytes);
    reserved_[data] = size_bytes;
    return data;
  }
  void ReleaseAddresses(void* addresses, std::int64_t size_bytes) override {
    EXPECT_EQ(reserved_[static_cast<char*>(addresses)], size_bytes);
    reserved_.erase(static_cast<char*>(addresses));
  }
  absl::Status MapChunk(void* address, std::int64_t size_bytes) override {
    char* const begin = static_cast<char*>(address);
    const auto next = mapped_.lower_bound(begin);
    EXPECT_TRUE(next == mapped_.end() || next->first >= begin + size_bytes) << "chunks overlap";
    EXPECT_TRUE(next == mapped_.begin() || std::prev(next)->first + std::prev(next)->second <= begin) << "chunks overlap";
    if (absl::Status status = Take(size_bytes); !status.ok()) return status;
    mapped_[begin] = size_bytes;
    return absl::OkStatus();
  }
  void UnmapChunk(void* address, std::int64_t size_bytes) override {
    EXPECT_EQ(mapped_[static_cast<char*>(address)], size_bytes);
    mapped_.erase(static_cast<char*>(address));
    capacity_bytes_ += size_bytes;
    mapped_bytes_ -= size_bytes;
  }

  void set_capacity_bytes(std::int64_t bytes) { capacity_bytes_ = bytes; }
  // The n-th fallible call from now on fails, counted from 0, and those until `count` have.
  void FailCalls(std::int64_t n, std::int64_t count) {
    first_failure_ = num_calls_ + n;
    last_failure_ = first_failure_ + count;
  }
  std::int64_t num_calls() const { return num_calls_; }
  std::int64_t mapped_bytes() const { return mapped_bytes_; }
  // Whether there is memory behind all of [data, data + size_bytes).
  bool IsMapped(const char* data, std::int64_t size_bytes) const {
    auto chunk = mapped_.upper_bound(const_cast<char*>(data));
    if (chunk == mapped_.begin()) return false;
    const char* at = data;
    for (--chunk; chunk != mapped_.end() && chunk->first <= at && at < data + size_bytes; ++chunk) {
      at = chunk->first + chunk->second;
    }
    return at >= data + size_bytes;
  }

 private:
  bool FailsNow() {
    const std::int64_t call = num_calls_++;
    return call >= first_failure_ && call < last_failure_;
  }

  absl::Status Take(std::int64_t size_bytes) {
    EXPECT_EQ(size_bytes % kSegmentAlignmentBytes, 0);
    EXPECT_GT(size_bytes, 0);
    if (FailsNow() || size_bytes > capacity_bytes_) return absl::ResourceExhaustedError("source is empty");
    capacity_bytes_ -= size_bytes;
    mapped_bytes_ += size_bytes;
    return absl::OkStatus();
  }

  char* NewAddresses(std::int64_t size_bytes) { return reinterpret_cast<char*>(std::exchange(next_, next_ + size_bytes)); }

  const bool can_grow_;
  std::int64_t next_ = kSegmentAlignmentBytes;
  std::int64_t capacity_bytes_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t mapped_bytes_ = 0;
  std::int64_t num_calls_ = 0;
  std::int64_t first_failure_ = 0;
  std::int64_t last_failure_ = 0;
  std::map<char*, std::int64_t> mapped_;
  std::map<char*, std::int64_t> reserved_;
};

}  // namespace ridgeline::device
