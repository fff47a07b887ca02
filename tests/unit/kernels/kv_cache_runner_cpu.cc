#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/kv_cache/kv_cache.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/thread_executor.h"
#include "tests/unit/kernels/kv_cache_runner.h"

namespace ridgeline::kernels::kv_cache {
namespace {

constexpr int kNumSlots = 3;

}  // namespace

struct DeviceBytes::Memory {
  support::GuardedBuffer buffer;
};

DeviceBytes::DeviceBytes(std::span<const std::byte> bytes)
    : memory_(new Memory{support::GuardedBuffer(static_cast<std::int64_t>(bytes.size()))}) {
  std::ranges::copy(bytes, memory_->buffer.bytes().begin());
}

DeviceBytes::~DeviceBytes() = default;

void* DeviceBytes::data() const { return memory_->buffer.data(); }

bool DeviceBytes::Hold(std::span<const std::byte> bytes) const { return std::ranges::equal(memory_->buffer.bytes(), bytes); }

bool DeviceBytes::guards_whole() const { return memory_->buffer.guards_whole(); }

void RunAppend(const AppendParams& params) {
  support::ThreadExecutor executor(kNumSlots);
  AppendOnCpu(params, executor);
}

void RunGather(const GatherParams& params) {
  support::ThreadExecutor executor(kNumSlots);
  GatherOnCpu(params, executor);
}

void RunCopyPages(const CopyPagesParams& params) {
  support::ThreadExecutor executor(kNumSlots);
  CopyPagesOnCpu(params, executor);
}

}  // namespace ridgeline::kernels::kv_cache
