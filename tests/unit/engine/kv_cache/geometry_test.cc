#include "server/engine/kv_cache/geometry.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::engine::kv_cache {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

GeometryRequest Request() {
  return {.data_type = kernels::DataType::kFloat16,
          .layers = 3,
          .kv_heads = 2,
          .head_dim = 24,
          .value_head_dim = 8,
          .page_tokens = 5,
          .capacity_pages = 7};
}

TEST(GeometryTest, PlanesLieOneAfterTheOtherAligned) {
  ASSERT_OK_AND_ASSIGN(const Geometry geometry, CheckGeometry(Request(), kNoLimit));
  EXPECT_EQ(geometry.KeyPageBytes(), 5 * 2 * 24 * 2);
  EXPECT_EQ(geometry.ValuePageBytes(), 5 * 2 * 8 * 2);
  EXPECT_EQ(geometry.PageBytes(), 3 * (480 + 160));
  EXPECT_EQ(geometry.KeyPlaneBytes(), 3584);    // 7 * 480 = 3360
  EXPECT_EQ(geometry.ValuePlaneBytes(), 1536);  // 7 * 160 = 1120
  EXPECT_EQ(geometry.KeyPlaneOffsetBytes(0), 0);
  EXPECT_EQ(geometry.KeyPlaneOffsetBytes(2), 2 * 3584);
  EXPECT_EQ(geometry.ValuePlaneOffsetBytes(0), 3 * 3584);
  EXPECT_EQ(geometry.ValuePlaneOffsetBytes(2), 3 * 3584 + 2 * 1536);
  EXPECT_EQ(geometry.ArenaBytes(), 3 * 3584 + 3 * 1536);
}

TEST(GeometryTest, ZerosStandForDefaults) {
  GeometryRequest request = Request();
  request.value_head_dim = 0;
  request.page_tokens = 0;
  ASSERT_OK_AND_ASSIGN(const Geometry geometry, CheckGeometry(request, kNoLimit));
  EXPECT_EQ(geometry.value_head_dim, 24);
  EXPECT_EQ(geometry.page_tokens, 16);
}

TEST(GeometryTest, PagesAreCountedUpToTheLast) {
  ASSERT_OK_AND_ASSIGN(const Geometry geometry, CheckGeometry(Request(), kNoLimit));
  EXPECT_EQ(geometry.PagesFor(0), 0);
  EXPECT_EQ(geometry.PagesFor(1), 1);
  EXPECT_EQ(geometry.PagesFor(5), 1);
  EXPECT_EQ(geometry.PagesFor(6), 2);
  EXPECT_EQ(geometry.PagesFor(kNoLimit), kNoLimit / 5 + 1);
}

TEST(GeometryTest, BytesAreWholePages) {
  GeometryRequest request = Request();
  request.capacity_pages = 0;
  request.capacity_bytes = 4 * 1920 + 1919;
  ASSERT_OK_AND_ASSIGN(const Geometry geometry, CheckGeometry(request, kNoLimit));
  EXPECT_EQ(geometry.capacity_pages, 4);
  request.capacity_bytes = 1919;
  const absl::Status status = CheckGeometry(request, kNoLimit).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("1919"), HasSubstr("1920 bytes"))));
  EXPECT_EQ(base::ErrorField(status), "kv_cache.capacity_bytes");
}

TEST(GeometryTest, PagesBeyondFourGibibytesHaveTheirPlace) {
  ASSERT_OK_AND_ASSIGN(const Geometry geometry, CheckGeometry({.data_type = kernels::DataType::kFloat32,
                                                               .layers = 80,
                                                               .kv_heads = 8,
                                                               .head_dim = 128,
                                                               .page_tokens = 16,
                                                               .capacity_pages = 1 << 20},
                                                              kNoLimit));
  EXPECT_EQ(geometry.KeyPlaneBytes(), std::int64_t{1} << 36);
  EXPECT_EQ(geometry.ValuePlaneOffsetBytes(79), 159 * (std::int64_t{1} << 36));
}

struct BadRequest {
  const char* field;
  const char* message;
  GeometryRequest request;
};

GeometryRequest With(void (*change)(GeometryRequest&)) {
  GeometryRequest request = Request();
  change(request);
  return request;
}

TEST(GeometryTest, BadFieldsAreNamed) {
  const BadRequest bad[] = {
      {"kv_cache.data_type", "not given", With([](auto& r) { r.data_type.reset(); })},
      {"kv_cache.data_type", "int64", With([](auto& r) { r.data_type = kernels::DataType::kInt64; })},
      {"kv_cache.layers", "is 0; 1 to 4096", With([](auto& r) { r.layers = 0; })},
      {"kv_cache.layers", "is 4097", With([](auto& r) { r.layers = 4097; })},
      {"kv_cache.kv_heads", "is -1; 1 to 65536", With([](auto& r) { r.kv_heads = -1; })},
      {"kv_cache.kv_heads", "is 65537", With([](auto& r) { r.kv_heads = 65537; })},
      {"kv_cache.head_dim", "is 0; a multiple of 8 up to 256", With([](auto& r) { r.head_dim = 0; })},
      {"kv_cache.head_dim", "is 12", With([](auto& r) { r.head_dim = 12; })},
      {"kv_cache.head_dim", "is 264", With([](auto& r) { r.head_dim = 264; })},
      {"kv_cache.value_head_dim", "is -8", With([](auto& r) { r.value_head_dim = -8; })},
      {"kv_cache.page_tokens", "is 257; 1 to 256", With([](auto& r) { r.page_tokens = 257; })},
      {"kv_cache.page_tokens", "is -1", With([](auto& r) { r.page_tokens = -1; })},
      {"kv_cache.capacity_pages", "exactly one", With([](auto& r) { r.capacity_pages = 0; })},
      {"kv_cache.capacity_pages", "exactly one", With([](auto& r) { r.capacity_bytes = 1 << 20; })},
      {"kv_cache.capacity_pages", "is -7", With([](auto& r) { r.capacity_pages = -7; })},
      {"kv_cache.capacity_pages", "is 16777217; 1 to 16777216", With([](auto& r) { r.capacity_pages = (1 << 24) + 1; })},
      {"kv_cache.capacity_bytes", "is -1", With([](auto& r) {
         r.capacity_pages = 0;
         r.capacity_bytes = -1;
       })},
      {"kv_cache.capacity_bytes", "16777216 are allowed: set a larger page_tokens", With([](auto& r) {
         r.capacity_pages = 0;
         r.capacity_bytes = kNoLimit;
       })},
  };
  for (const BadRequest& row : bad) {
    const absl::Status status = CheckGeometry(row.request, kNoLimit).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(row.message)));
    EXPECT_EQ(base::ErrorField(status), row.field) << status;
  }
}

TEST(GeometryTest, TypesThatCachesLackAreUnimplemented) {
  GeometryRequest request = Request();
  request.data_type = kernels::DataType::kFloat8E4M3;
  EXPECT_THAT(CheckGeometry(request, kNoLimit), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("float8_e4m3")));
}

TEST(GeometryTest, ArenasBeyondTheLimitSayTheirBytes) {
  const std::int64_t arena_bytes = 3 * 3584 + 3 * 1536;
  EXPECT_OK(CheckGeometry(Request(), arena_bytes));
  const absl::Status status = CheckGeometry(Request(), arena_bytes - 1).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kResourceExhausted, AllOf(HasSubstr("15360 bytes"), HasSubstr("15359 bytes"))));
  EXPECT_EQ(base::ErrorReason(status), base::kReasonOutOfMemory);
}

TEST(GeometryTest, TheLargestOfEverythingOverflowsNothing) {
  const absl::Status status = CheckGeometry({.data_type = kernels::DataType::kFloat32,
                                             .layers = kMaxLayers,
                                             .kv_heads = kMaxKvHeads,
                                             .head_dim = kMaxHeadDim,
                                             .page_tokens = kMaxPageTokens,
                                             .capacity_pages = kMaxCapacityPages},
                                            kNoLimit)
                                  .status();
  EXPECT_EQ(base::ErrorReason(status), base::kReasonOutOfMemory) << status;
}

}  // namespace
}  // namespace ridgeline::engine::kv_cache
