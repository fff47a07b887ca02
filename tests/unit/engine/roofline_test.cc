#include "server/engine/roofline.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/roofline_cache.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/flaky_device.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/requests.h"

namespace ridgeline::engine {
namespace {

using support::IsOk;
using support::IsOkAndHolds;
using support::StatusIs;

class RooflineFileTest : public ::testing::Test {
 protected:
  ~RooflineFileTest() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) /
      absl::StrCat("roofline.", ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".", getpid());
  const std::string path_ = folder_ / "deep" / "roofline";
  support::FlakyDevice device_{MakeDevice(/*num_lanes=*/1)};
};

void ExpectSamePeaks(const Roofline& a, const Roofline& b) {
  EXPECT_EQ(a.device, b.device);
  EXPECT_EQ(a.bytes_per_second, b.bytes_per_second);
  ASSERT_EQ(a.compute_roofs.size(), b.compute_roofs.size());
  for (std::size_t i = 0; i < a.compute_roofs.size(); ++i) {
    EXPECT_EQ(a.compute_roofs[i].data_type, b.compute_roofs[i].data_type);
    EXPECT_EQ(a.compute_roofs[i].flops_per_second, b.compute_roofs[i].flops_per_second);
  }
}

TEST(RooflineCacheTest, TextSurvivesTheRoundTrip) {
  const Roofline roofline = MadeUpRoofline();
  ASSERT_OK_AND_ASSIGN(const Roofline parsed, ParseRoofline(FormatRoofline("key", roofline), "key"));
  ExpectSamePeaks(parsed, roofline);
  EXPECT_TRUE(parsed.cached);
}

TEST(RooflineCacheTest, RefusesOtherKeysAndEveryTruncation) {
  const std::string text = FormatRoofline("key", MadeUpRoofline());
  EXPECT_THAT(ParseRoofline(text, "another key"), StatusIs(absl::StatusCode::kNotFound));
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(ParseRoofline(text.substr(0, size), "key").ok()) << size;
  }
}

TEST(RooflineCacheTest, RefusesNumbersThatAreNoRates) {
  for (const char* rate : {"nan", "inf", "-1", "fast", ""}) {
    Roofline roofline = MadeUpRoofline();
    std::string text = FormatRoofline("key", roofline);
    const std::string line = text.substr(text.find("memory "), text.find('\n', text.find("memory ")) - text.find("memory "));
    text.replace(text.find(line), line.size(), absl::StrCat("memory ", rate, " 0"));
    EXPECT_THAT(ParseRoofline(text, "key"), StatusIs(absl::StatusCode::kDataLoss)) << rate;
  }
}

TEST_F(RooflineFileTest, MeasuresOnceAndThenReads) {
  ASSERT_OK_AND_ASSIGN(const Roofline measured, LoadOrMeasureRoofline(device_, path_));
  EXPECT_FALSE(measured.cached);
  EXPECT_GT(measured.bytes_per_second, 0);
  ASSERT_EQ(measured.compute_roofs.size(), 3u);
  for (const ComputeRoof& roof : measured.compute_roofs) EXPECT_GT(roof.flops_per_second, 0);
  EXPECT_EQ(device_.memory_stats().reserved_bytes, 0) << "measuring leaves nothing behind";
  const std::int64_t calls = device_.num_calls();
  ASSERT_OK_AND_ASSIGN(const Roofline read, LoadOrMeasureRoofline(device_, path_));
  EXPECT_TRUE(read.cached);
  EXPECT_EQ(device_.num_calls(), calls);
  ExpectSamePeaks(read, measured);
}

TEST_F(RooflineFileTest, MeasuresAnewOverADamagedFile) {
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
  std::ofstream(path_) << "ridgeline-roofline-1\n" << RooflineKey(device_.info()) << "\nmemory fast\n";
  ASSERT_OK_AND_ASSIGN(const Roofline measured, LoadOrMeasureRoofline(device_, path_));
  EXPECT_FALSE(measured.cached);
  ASSERT_OK_AND_ASSIGN(const Roofline read, LoadOrMeasureRoofline(device_, path_));
  EXPECT_TRUE(read.cached);
}

TEST_F(RooflineFileTest, AFileThatCannotBeWrittenIsNoError) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ / "file") << "not a folder";
  ASSERT_OK_AND_ASSIGN(const Roofline measured, LoadOrMeasureRoofline(device_, folder_ / "file" / "roofline"));
  EXPECT_FALSE(measured.cached);
}

TEST_F(RooflineFileTest, AFullDiskKeepsTheOldFileAndLeavesNoPartOfTheNew) {
  ASSERT_THAT(WriteRooflineFile(path_, "old"), IsOk());
  const auto before = signal(SIGXFSZ, SIG_IGN);
  {
    const support::FileSizeLimit limit(100);
    EXPECT_THAT(WriteRooflineFile(path_, std::string(1000, 'x')), StatusIs(absl::StatusCode::kUnavailable));
  }
  signal(SIGXFSZ, before);
  EXPECT_THAT(ReadRooflineFile(path_), IsOkAndHolds("old"));
  const std::filesystem::directory_iterator files(std::filesystem::path(path_).parent_path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(RooflineFileTest, ADeviceThatFailsIsAnError) {
  for (const std::int64_t n : {0, 1, 2, 5, 20}) {
    device_.FailCall(n, absl::UnavailableError("injected"));
    EXPECT_THAT(MeasureRoofline(device_), StatusIs(absl::StatusCode::kUnavailable)) << n;
    EXPECT_EQ(device_.memory_stats().allocation_count, 0);
  }
}

}  // namespace
}  // namespace ridgeline::engine
