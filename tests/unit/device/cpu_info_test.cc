#include "server/device/cpu_info.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace ridgeline::device {
namespace {

constexpr std::int64_t kKiB = 1 << 10;
constexpr std::int64_t kGiB = 1 << 30;

// A tree of files like /proc and /sys.
class CpuInfoTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = ::testing::TempDir() + "cpu_info_XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    root_ = folder;
    Write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:        1 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::optional<std::int64_t> ReadAvailable() { return ReadAvailableMemoryBytes(root_.string()); }
  CpuInfo Read() { return ReadCpuInfo(root_.string()); }

  std::filesystem::path root_;
};

TEST_F(CpuInfoTest, NameCachesAndClock) {
  Write("proc/cpuinfo", "processor\t: 0\nmodel\t\t: 2\nmodel name\t: Example 9000 96-Core Processor: R2\nflags\t\t: fpu\n");
  const std::string cache = "sys/devices/system/cpu/cpu0/cache/";
  const auto write_cache = [&](int index, const char* level, const char* type, const char* size) {
    const std::string folder = cache + "index" + std::to_string(index);
    Write(folder + "/level", std::string(level) + "\n");
    Write(folder + "/type", std::string(type) + "\n");
    Write(folder + "/size", std::string(size) + "\n");
  };
  write_cache(0, "1", "Instruction", "32K");
  write_cache(1, "1", "Data", "48K");
  write_cache(2, "2", "Unified", "1024K");
  write_cache(3, "3", "Unified", "32768K");
  Write("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "4500000\n");
  const CpuInfo info = Read();
  EXPECT_EQ(info.name, "Example 9000 96-Core Processor: R2");
  EXPECT_EQ(info.l1_cache_bytes, 48 * kKiB);
  EXPECT_EQ(info.l2_cache_bytes, 1024 * kKiB);
  EXPECT_EQ(info.l3_cache_bytes, 32768 * kKiB);
  EXPECT_EQ(info.max_clock_hz, 4.5e9);
  EXPECT_EQ(info.memory_bytes, 16 * kGiB);
}

TEST_F(CpuInfoTest, WhatIsUnknownIsZero) {
  const CpuInfo info = Read();
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.usable_cores, 1);
  EXPECT_EQ(info.l1_cache_bytes, 0);
  EXPECT_EQ(info.l2_cache_bytes, 0);
  EXPECT_EQ(info.l3_cache_bytes, 0);
  EXPECT_EQ(info.max_clock_hz, 0);
}

TEST_F(CpuInfoTest, ControlGroupVersion2) {
  Write("proc/self/cgroup", "0::/ridgeline.slice/ridgelined.service\n");
  Write("sys/fs/cgroup/ridgeline.slice/ridgelined.service/memory.max", "max\n");
  Write("sys/fs/cgroup/ridgeline.slice/ridgelined.service/cpu.max", "max 100000\n");
  EXPECT_EQ(Read().memory_bytes, 16 * kGiB);
  const int cores = Read().usable_cores;

  Write("sys/fs/cgroup/ridgeline.slice/memory.max", "4294967296\n");
  Write("sys/fs/cgroup/ridgeline.slice/cpu.max", "50000 100000\n");
  EXPECT_EQ(Read().memory_bytes, 4 * kGiB) << "the limit of a group around it holds as well";
  EXPECT_EQ(Read().usable_cores, 1) << "half a core is one thread";

  Write("sys/fs/cgroup/ridgeline.slice/ridgelined.service/memory.max", "1073741824\n");
  EXPECT_EQ(Read().memory_bytes, kGiB);
  Write("sys/fs/cgroup/ridgeline.slice/cpu.max", "99900000 100000\n");
  EXPECT_EQ(Read().usable_cores, cores) << "a quota makes no cores";
}

TEST_F(CpuInfoTest, ControlGroupVersion2InAContainer) {
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/memory.max", "2147483648\n");
  Write("sys/fs/cgroup/cpu.max", "100000 100000\n");
  EXPECT_EQ(Read().memory_bytes, 2 * kGiB);
  EXPECT_EQ(Read().usable_cores, 1);
}

TEST_F(CpuInfoTest, ControlGroupVersion1) {
  Write("proc/self/cgroup", "5:cpu,cpuacct:/docker/0123\n4:memory:/docker/0123\n0::/\n");
  // The container's mount shows its own group as the root; the path of the host is not there.
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "3221225472\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  const int cores = Read().usable_cores;
  EXPECT_EQ(Read().memory_bytes, 3 * kGiB);
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "20000\n");
  EXPECT_EQ(Read().usable_cores, 1);
  EXPECT_GE(cores, 1);
}

TEST_F(CpuInfoTest, AvailableMemoryIsWhatTheKernelSays) {
  EXPECT_EQ(ReadAvailable(), std::nullopt) << "an old kernel says nothing";
  Write("proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:    1024 kB\n");
  EXPECT_EQ(ReadAvailable(), 1024 * kKiB);
}

TEST(CpuInfo, OfThisMachine) {
  const CpuInfo info = ReadCpuInfo();
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.usable_cores, 1);
  EXPECT_GT(info.memory_bytes, 0);
  EXPECT_GT(ReadAvailableMemoryBytes().value_or(0), 0);
}

}  // namespace
}  // namespace ridgeline::device
