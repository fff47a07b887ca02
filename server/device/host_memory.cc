#include "server/device/host_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/check.h"
#include "server/base/units.h"

namespace ridgeline::device {
namespace {

void UnmapRange(char* begin, char* end) {
  if (begin != end) RIDGELINE_CHECK(munmap(begin, end - begin) == 0);
}

// Maps pages aligned to kSegmentAlignmentBytes.
absl::StatusOr<void*> MapAligned(std::int64_t size_bytes, int protection, int flags) {
  // The kernel aligns to small pages only: map one alignment more, cut off what lies before and after.
  const std::int64_t mapped_bytes = size_bytes + kSegmentAlignmentBytes;
  void* const mapped = mmap(nullptr, mapped_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (mapped == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", base::FormatBytes(size_bytes), " of host memory"));
  }
  char* const begin = static_cast<char*>(mapped);
  const std::int64_t past_alignment_bytes = reinterpret_cast<std::uintptr_t>(begin) % kSegmentAlignmentBytes;
  char* const aligned = begin + (past_alignment_bytes == 0 ? 0 : kSegmentAlignmentBytes - past_alignment_bytes);
  UnmapRange(begin, aligned);
  UnmapRange(aligned + size_bytes, begin + mapped_bytes);
  // 512 times fewer page faults and TLB entries. Advice: a kernel without huge pages refuses, and small ones do as well.
  (void)madvise(aligned, size_bytes, MADV_HUGEPAGE);
  return aligned;
}

}  // namespace

absl::StatusOr<void*> HostMemory::Map(std::int64_t size_bytes) { return MapAligned(size_bytes, PROT_READ | PROT_WRITE, 0); }

void HostMemory::Unmap(void* data, std::int64_t size_bytes) {
  UnmapRange(static_cast<char*>(data), static_cast<char*>(data) + size_bytes);
}

absl::StatusOr<void*> HostMemory::ReserveAddresses(std::int64_t size_bytes) {
  return MapAligned(size_bytes, PROT_NONE, MAP_NORESERVE);
}

void HostMemory::ReleaseAddresses(void* addresses, std::int64_t size_bytes) { Unmap(addresses, size_bytes); }

absl::Status HostMemory::MapChunk(void* address, std::int64_t size_bytes) {
  if (mprotect(address, size_bytes, PROT_READ | PROT_WRITE) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", base::FormatBytes(size_bytes), " of host memory"));
}

void HostMemory::UnmapChunk(void* address, std::int64_t size_bytes) {
  RIDGELINE_CHECK(madvise(address, size_bytes, MADV_DONTNEED) == 0);
  // Fails only when the process has too many mappings; the addresses then stay open, with nothing behind them.
  (void)mprotect(address, size_bytes, PROT_NONE);
}

}  // namespace ridgeline::device
