// Snapshots of a busy allocator, as Python and PyTorch's visualiser read them.
#include "server/api/snapshot_writer.h"

#include <array>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/api/memory_converter.h"
#include "server/base/error.h"
#include "server/device/caching_allocator.h"
#include "server/device/host_memory.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::api {
namespace {

using device::AllocatorOptions;
using device::Buffer;
using device::CachingAllocator;
using device::MemoryOwner;
using ::ridgeline::support::StatusIs;

constexpr std::int64_t kMiB = 1 << 20;

// Live, pending and free blocks of both pools, from requests of two lanes.
class BusyAllocator {
 public:
  explicit BusyAllocator(bool grows) : allocator_(memory_, 512 * kMiB, lanes_, AllocatorOptions{.growing_segments = grows}) {
    std::mt19937_64 random(5);
    for (int step = 0; step < 400; ++step) {
      const int lane = static_cast<int>(random() % 2);
      if (step % 10 == 0) {
        const MemoryOwner owner{.operation = "Attend", .request_id = absl::StrCat("request-", step, " \"ö\"")};
        EXPECT_OK(allocator_.Reserve(lane, kMiB, std::make_shared<const MemoryOwner>(owner)));
      }
      if (random() % 3 == 0) ++lanes_[lane].queued;
      if (random() % 5 == 0) lanes_[lane].completed = lanes_[lane].queued.load();
      Buffer& buffer = buffers_[random() % buffers_.size()];
      buffer = Buffer();
      absl::StatusOr<Buffer> next = allocator_.Allocate(lane, 1 + static_cast<std::int64_t>(random() % (8 * kMiB)));
      EXPECT_OK(next);
      buffer = *std::move(next);
    }
    EXPECT_FALSE(allocator_.Allocate(0, 600 * kMiB).ok());
    ++lanes_[0].queued;
    for (std::size_t i = 0; i < buffers_.size(); i += 2) buffers_[i] = Buffer();
  }

  device::MemorySnapshot snapshot() const { return allocator_.snapshot(); }

 private:
  std::array<device::LaneProgress, 2> lanes_;
  device::HostMemory memory_;
  CachingAllocator allocator_;
  std::array<Buffer, 24> buffers_;
};

void ExpectPythonAccepts(const std::string& bytes, const std::string& name, int least_events) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/snapshot_writer_test.", name);
  std::ofstream(path, std::ios::binary) << bytes;
  const std::string command =
      absl::StrCat("python3 " RIDGELINE_SOURCE_DIR "/tests/unit/api/check_snapshot.py ", path, " ", least_events);
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST(SnapshotWriterTest, BlocksTileTheirSegmentsInPython) {
  for (const bool grows : {true, false}) {
    const BusyAllocator busy(grows);
    PickleWriter pickle;
    WriteSnapshot(busy.snapshot(), pickle);
    ExpectPythonAccepts(pickle.Finish(), "pickle", 800);
    JsonWriter json;
    WriteSnapshot(busy.snapshot(), json);
    ExpectPythonAccepts(json.Finish(), "json", 800);
  }
}

TEST(MemorySnapshotTest, MessagesSayTheSame) {
  const device::MemorySnapshot snapshot = BusyAllocator(true).snapshot();
  const auto message = ToMessage(snapshot, v1::GetMemorySnapshotRequest());
  ASSERT_OK(message);
  ASSERT_EQ(message->segments_size(), static_cast<int>(snapshot.segments.size()));
  for (const v1::MemorySegment& segment : message->segments()) {
    std::int64_t size_bytes = 0;
    for (const v1::MemoryBlock& block : segment.blocks()) size_bytes += block.size_bytes();
    EXPECT_EQ(size_bytes, segment.size_bytes());
    EXPECT_TRUE(segment.growing());
  }
  ASSERT_EQ(message->events_size(), static_cast<int>(snapshot.history.size()));
  EXPECT_EQ(message->events(message->events_size() - 1).action(), v1::MEMORY_ACTION_FREE_REQUESTED);
  EXPECT_TRUE(message->file().empty());
}

TEST(MemorySnapshotTest, OnlyTheLatestEventsThatWereAskedFor) {
  const device::MemorySnapshot snapshot = BusyAllocator(true).snapshot();
  v1::GetMemorySnapshotRequest request;
  request.set_max_events(3);
  const auto few = ToMessage(snapshot, request);
  ASSERT_OK(few);
  ASSERT_EQ(few->events_size(), 3);
  EXPECT_EQ(few->events(2).address(), reinterpret_cast<std::uintptr_t>(snapshot.history.back().data));
  request.set_max_events(0);
  EXPECT_EQ(ToMessage(snapshot, request)->events_size(), 0);
  request.set_max_events(1 << 30);
  EXPECT_EQ(ToMessage(snapshot, request)->events_size(), static_cast<int>(snapshot.history.size()));
  request.set_max_events(-1);
  EXPECT_EQ(base::ErrorField(ToMessage(snapshot, request).status()), "max_events");
}

TEST(MemorySnapshotTest, AFormatIsAFile) {
  const device::MemorySnapshot snapshot = BusyAllocator(true).snapshot();
  v1::GetMemorySnapshotRequest request;
  request.set_format(v1::MEMORY_SNAPSHOT_FORMAT_PICKLE);
  const auto pickle = ToMessage(snapshot, request);
  ASSERT_OK(pickle);
  EXPECT_FALSE(pickle->file().empty());
  EXPECT_EQ(pickle->segments_size(), 0);
  request.set_format(static_cast<v1::MemorySnapshotFormat>(77));
  EXPECT_THAT(ToMessage(snapshot, request), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace ridgeline::api
