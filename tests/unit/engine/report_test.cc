#include "server/engine/report.h"

#include "gtest/gtest.h"
#include "tests/unit/engine/requests.h"

namespace ridgeline::engine {
namespace {

using kernels::DataType;

// 100 GB/s and, in float32, 1 TFLOP/s: the ridge point is 10 FLOP/B.
ExecutionReport Place(std::int64_t flops, std::int64_t bytes, absl::Duration kernel_time, DataType type = DataType::kFloat32) {
  ExecutionReport report;
  report.flops = flops;
  report.bytes = bytes;
  report.kernel_time = kernel_time;
  PlaceOnRoofline(MadeUpRoofline(), type, report);
  return report;
}

TEST(PlaceOnRooflineTest, LeftOfTheRidgePointBandwidthIsTheRoof) {
  const ExecutionReport report = Place(2'000'000, 1'000'000, absl::Microseconds(20));
  EXPECT_EQ(report.bound, Bound::kMemory);
  EXPECT_DOUBLE_EQ(report.arithmetic_intensity, 2);
  EXPECT_DOUBLE_EQ(report.bytes_per_second, 50e9);
  EXPECT_DOUBLE_EQ(report.flops_per_second, 100e9);
  EXPECT_DOUBLE_EQ(report.roof_fraction, 0.5);
}

TEST(PlaceOnRooflineTest, RightOfItArithmeticIs) {
  const ExecutionReport report = Place(40'000'000, 1'000'000, absl::Microseconds(50));
  EXPECT_EQ(report.bound, Bound::kCompute);
  EXPECT_DOUBLE_EQ(report.roof_fraction, 0.8);
}

TEST(PlaceOnRooflineTest, TheRoofIsThatOfTheType) {
  EXPECT_EQ(Place(15'000'000, 1'000'000, absl::Microseconds(50)).bound, Bound::kCompute);
  EXPECT_EQ(Place(15'000'000, 1'000'000, absl::Microseconds(50), DataType::kBFloat16).bound, Bound::kMemory);
}

TEST(PlaceOnRooflineTest, NothingIsDividedByZero) {
  const ExecutionReport none = Place(0, 0, absl::ZeroDuration());
  EXPECT_EQ(none.flops_per_second, 0);
  EXPECT_EQ(none.bytes_per_second, 0);
  EXPECT_EQ(none.arithmetic_intensity, 0);
  EXPECT_EQ(none.roof_fraction, 0);
}

TEST(PlaceOnRooflineTest, WithoutARooflineTheRoofIsUnknown) {
  ExecutionReport report;
  report.flops = report.bytes = 1000;
  report.kernel_time = absl::Microseconds(1);
  PlaceOnRoofline(Roofline(), DataType::kFloat32, report);
  EXPECT_EQ(report.bound, Bound::kUnknown);
  EXPECT_EQ(report.roof_fraction, 0);
  EXPECT_DOUBLE_EQ(report.flops_per_second, 1e9);
}

TEST(TakeShareTest, WorkIsTheMembersAndTheRoofTheLaunchs) {
  ExecutionReport report = Place(8'000'000, 4'000'000, absl::Microseconds(80));
  TakeShare(1'000'000, 1'000'000, report);
  EXPECT_EQ(report.flops, 1'000'000);
  EXPECT_EQ(report.bytes, 1'000'000);
  EXPECT_EQ(report.kernel_time, absl::Microseconds(80));
  EXPECT_DOUBLE_EQ(report.arithmetic_intensity, 1);
  EXPECT_DOUBLE_EQ(report.bytes_per_second, 12.5e9);
  EXPECT_DOUBLE_EQ(report.flops_per_second, 12.5e9);
  EXPECT_DOUBLE_EQ(report.roof_fraction, 0.5);
  EXPECT_EQ(report.bound, Bound::kMemory);
}

}  // namespace
}  // namespace ridgeline::engine
