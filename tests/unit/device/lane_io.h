// What tests do with a lane, whatever the device: bytes in, bytes out, and waiting for what is queued.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "server/device/device.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::device {

inline constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Ends the lane's batch and waits for its status.
inline absl::Status Complete(Lane& lane) {
  std::promise<absl::Status> status;
  lane.OnComplete([&status](absl::Status s) { status.set_value(std::move(s)); });
  return status.get_future().get();
}

// `values` outlive the slice.
template <typename T>
HostSlice SliceOf(const std::vector<T>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size() * sizeof(T))};
}

template <typename T>
std::vector<T> ValuesOf(const HostBuffer& buffer) {
  const T* const values = static_cast<const T*>(buffer.data());
  return std::vector<T>(values, values + buffer.size_bytes() / sizeof(T));
}

inline std::vector<float> Numbered(std::int64_t count, float first = 0) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// A failure of these three fails the test, which then goes on with nothing.
template <typename T>
Buffer Upload(Lane& lane, std::vector<T> values) {
  const auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  absl::StatusOr<Buffer> buffer = lane.Upload({SliceOf(*owner)}, owner);
  EXPECT_OK(buffer);
  return buffer.ok() ? *std::move(buffer) : Buffer();
}

inline Buffer Allocate(Lane& lane, std::int64_t size_bytes) {
  absl::StatusOr<Buffer> buffer = lane.Allocate(size_bytes);
  EXPECT_OK(buffer);
  return buffer.ok() ? *std::move(buffer) : Buffer();
}

// Waits for all that is queued.
inline std::vector<float> Download(Lane& lane, Buffer buffer) {
  absl::StatusOr<std::shared_ptr<const HostBuffer>> result = lane.Download(std::move(buffer));
  EXPECT_OK(result);
  EXPECT_OK(Complete(lane));
  return result.ok() ? ValuesOf<float>(**result) : std::vector<float>();
}

}  // namespace ridgeline::device
