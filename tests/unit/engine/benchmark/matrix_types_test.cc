#include "server/engine/benchmark/matrix_types.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/benchmark/run.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::engine::benchmark {
namespace {

using kernels::microbench::MatrixUnit;
using support::IsOk;
using support::StatusIs;
using ::testing::HasSubstr;

device::DeviceInfo Gpu(const std::string& instruction_set) {
  device::DeviceInfo info;
  info.type = device::DeviceType::kCuda;
  info.instruction_set = instruction_set;
  return info;
}

absl::Status CheckOn(const std::string& instruction_set, MatrixUnit unit, const char* type) {
  return CheckMatrixUnit(Gpu(instruction_set), unit, *FindMatrixType(type));
}

TEST(MatrixTypes, AreFoundByName) {
  for (const MatrixTypeRow& row : MatrixTypes()) EXPECT_EQ(FindMatrixType(row.name), &row);
  EXPECT_EQ(FindMatrixType("float32"), nullptr);
  EXPECT_EQ(FindMatrixType(""), nullptr);
}

TEST(MatrixTypes, WgmmaIsHoppers) {
  EXPECT_THAT(CheckOn("sm_90", MatrixUnit::kWgmma, "bfloat16"), IsOk());
  for (const char* other : {"sm_80", "sm_89", "sm_100"}) {
    EXPECT_THAT(CheckOn(other, MatrixUnit::kWgmma, "bfloat16"), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(other)));
  }
}

TEST(MatrixTypes, EightBitFloatsAreNotOfEachUnit) {
  EXPECT_THAT(CheckOn("sm_90", MatrixUnit::kWgmma, "float8_e4m3"), IsOk());
  EXPECT_THAT(CheckOn("sm_89", MatrixUnit::kMma, "float8_e5m2"), IsOk());
  for (const char* without : {"sm_80", "sm_86", "sm_90"}) {
    EXPECT_THAT(CheckOn(without, MatrixUnit::kMma, "float8_e4m3"),
                StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(without)));
    EXPECT_THAT(CheckOn(without, MatrixUnit::kMma, "int8"), IsOk());
  }
}

TEST(MatrixTypes, EachIsSweptOnTheRooflineOfAGpuFromEightFlopForAByte) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan({.name = "roofline", .axes = {}, .measurement = {}}, Gpu("sm_90")));
  std::set<std::string> types;
  for (const AxisValues& point : plan.points) {
    types.insert(point.Word("type"));
    if (FindMatrixType(point.Word("type")) == nullptr) continue;
    const std::string& intensity = point.Word("flops_per_byte");
    EXPECT_THAT((std::set<std::string>{"8", "16", "32", "64", "128", "256", "512", "1024"}), ::testing::Contains(intensity));
  }
  EXPECT_EQ(types.size(), MatrixTypes().size() + 1);
}

}  // namespace
}  // namespace ridgeline::engine::benchmark
