#include "server/device/host_memory.h"

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::device {
namespace {

TEST(HostMemory, SegmentsAreAlignedAndWritable) {
  HostMemory memory;
  for (const std::int64_t size_bytes : {kSegmentAlignmentBytes, 10 * kSegmentAlignmentBytes}) {
    ASSERT_OK_AND_ASSIGN(void* const data, memory.Map(size_bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % kSegmentAlignmentBytes, 0u);
    char* const bytes = static_cast<char*>(data);
    bytes[0] = 1;
    bytes[size_bytes - 1] = 2;
    EXPECT_EQ(bytes[0] + bytes[size_bytes - 1], 3);
    memory.Unmap(data, size_bytes);
  }
}

TEST(HostMemory, RefusesWhatNoMachineHas) {
  HostMemory memory;
  constexpr std::int64_t kTooLarge =
      std::numeric_limits<std::int64_t>::max() / kSegmentAlignmentBytes / 2 * kSegmentAlignmentBytes;
  EXPECT_THAT(memory.Map(kTooLarge), support::StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace ridgeline::device
