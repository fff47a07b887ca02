#include "tests/support/guarded_buffer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define RIDGELINE_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RIDGELINE_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef RIDGELINE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace ridgeline::support {
namespace {

constexpr std::int64_t kAlignmentBytes = 64;
constexpr std::int64_t kGuardBytes = 256;  // more than the widest vector register, on either side

}  // namespace

GuardedBuffer::GuardedBuffer(std::int64_t size_bytes, std::int64_t offset_bytes)
    : memory_(new std::byte[kGuardBytes + kAlignmentBytes + offset_bytes + size_bytes + kGuardBytes]), size_bytes_(size_bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory_.get()) + kGuardBytes;
  const auto aligned = (begin + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  data_ = memory_.get() + kGuardBytes + (aligned - begin) + offset_bytes;
  std::ranges::fill(front_guard(), kPoison);
  std::ranges::fill(back_guard(), kPoison);
  Poison();
  SetGuardAccess(false);
}

GuardedBuffer::~GuardedBuffer() {
  if (memory_ != nullptr) SetGuardAccess(true);
}

GuardedBuffer::GuardedBuffer(GuardedBuffer&& other) noexcept
    : memory_(std::move(other.memory_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

GuardedBuffer& GuardedBuffer::operator=(GuardedBuffer&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

bool GuardedBuffer::IsWatched() {
#ifdef RIDGELINE_ADDRESS_SANITIZER
  return true;
#else
  return false;
#endif
}

void GuardedBuffer::Poison() { std::ranges::fill(bytes(), kPoison); }

bool GuardedBuffer::guards_whole() const {
  SetGuardAccess(true);
  const auto whole = [](std::byte byte) { return byte == kPoison; };
  const bool both_whole = std::ranges::all_of(front_guard(), whole) && std::ranges::all_of(back_guard(), whole);
  SetGuardAccess(false);
  return both_whole;
}

void GuardedBuffer::SetGuardAccess([[maybe_unused]] bool allowed) const {
#ifdef RIDGELINE_ADDRESS_SANITIZER
  for (const std::span<std::byte> guard : {front_guard(), back_guard()}) {
    if (allowed) {
      ASAN_UNPOISON_MEMORY_REGION(guard.data(), guard.size());
    } else {
      ASAN_POISON_MEMORY_REGION(guard.data(), guard.size());
    }
  }
#endif
}

std::span<std::byte> GuardedBuffer::front_guard() const { return {data_ - kGuardBytes, static_cast<std::size_t>(kGuardBytes)}; }

std::span<std::byte> GuardedBuffer::back_guard() const { return {data_ + size_bytes_, static_cast<std::size_t>(kGuardBytes)}; }

}  // namespace ridgeline::support
