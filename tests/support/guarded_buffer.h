// Memory for a tensor under test, with guards that show whoever reads or writes past its ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace ridgeline::support {

// Filled and surrounded by bytes that read as NaN in every float type, so a stray read spoils the result that used it and a
// stray write is found by guards_whole(). Under the address sanitizer either one stops the test where it happens, if it is not
// within 8 bytes before the data.
class GuardedBuffer {
 public:
  static constexpr std::byte kPoison{0xff};

  // `offset_bytes` is the distance of the data from a 64-byte boundary.
  explicit GuardedBuffer(std::int64_t size_bytes = 0, std::int64_t offset_bytes = 0);
  ~GuardedBuffer();
  GuardedBuffer(GuardedBuffer&&) noexcept;
  GuardedBuffer& operator=(GuardedBuffer&&) noexcept;

  std::byte* data() const { return data_; }
  std::int64_t size_bytes() const { return size_bytes_; }
  std::span<std::byte> bytes() const { return {data_, static_cast<std::size_t>(size_bytes_)}; }

  // Whether the address sanitizer stops whoever touches a guard.
  static bool IsWatched();

  void Poison();
  bool guards_whole() const;

 private:
  void SetGuardAccess(bool allowed) const;
  std::span<std::byte> front_guard() const;
  std::span<std::byte> back_guard() const;

  std::unique_ptr<std::byte[]> memory_;  // null once moved from
  std::byte* data_ = nullptr;            // in memory_
  std::int64_t size_bytes_ = 0;
};

}  // namespace ridgeline::support
