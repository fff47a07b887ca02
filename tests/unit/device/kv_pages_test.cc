// Memory that all lanes share, and the work of a KV cache on it.
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/common/data_type.h"
#include "kernels/kv_cache/kv_cache.h"
#include "server/base/error.h"
#include "server/device/device.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/device/device_under_test.h"
#include "tests/unit/device/lane_io.h"

namespace ridgeline::device {
namespace {

using kernels::kv_cache::PageCopy;
using kernels::kv_cache::PagedRows;
using kernels::kv_cache::Pages;
using kernels::kv_cache::TokenSpan;
using ::ridgeline::support::StatusIs;
using ::testing::HasSubstr;

// Pages of two tokens; a token is eight floats of keys and as many of values. Two layers in one arena.
constexpr std::int64_t kRowElems = 8, kPageTokens = 2, kNumPages = 8, kNumLayers = 2;
constexpr std::int64_t kPageBytes = kPageTokens * kRowElems * sizeof(float);
constexpr std::int64_t kPlaneBytes = kNumPages * kPageBytes;
static_assert(kPlaneBytes % 512 == 0, "planes are aligned to 512 bytes");

class KvPagesTest : public DeviceTest {
 protected:
  static Pages LayerOf(const Buffer& arena, std::int64_t layer) {
    char* const first = static_cast<char*>(arena.data());
    return {.data_type = kernels::DataType::kFloat32,
            .kv_heads = 1,
            .head_dim = kRowElems,
            .value_head_dim = kRowElems,
            .page_tokens = kPageTokens,
            .key = first + layer * kPlaneBytes,
            .value = first + (kNumLayers + layer) * kPlaneBytes};
  }
};

// Rows appended on one lane, their pages copied on the other, and read there.
TEST_F(KvPagesTest, LanesShareAnArena) {
  ASSERT_OK_AND_ASSIGN(const Buffer arena, device_->Allocate(2 * kNumLayers * kPlaneBytes));
  Lane& writer = device_->lane(0);
  Lane& reader = device_->lane(1);
  const std::vector<float> keys = Numbered(3 * kRowElems, 1), values = Numbered(3 * kRowElems, 1001);
  const Buffer key_rows = Upload(writer, keys), value_rows = Upload(writer, values);
  const Buffer table = Upload(writer, std::vector<std::int32_t>{6, 1});
  const TokenSpan span = {.row_begin = 0, .num_tokens = 3, .table_begin = 0, .token_begin = 0};
  const Buffer spans = Upload(writer, std::vector<TokenSpan>{span});
  for (std::int64_t layer = 0; layer < kNumLayers; ++layer) {
    const PagedRows rows = {.pages = LayerOf(arena, layer),
                            .block_table = static_cast<const std::int32_t*>(table.data()),
                            .spans = static_cast<const TokenSpan*>(spans.data()),
                            .num_spans = 1,
                            .num_rows = 3};
    ASSERT_OK(writer.AppendKeyValue({.to = rows, .key = key_rows.data(), .value = value_rows.data()}));
  }
  ASSERT_OK(Complete(writer));

  const Buffer copies = Upload(reader, std::vector<PageCopy>{{.source = 6, .destination = 3}, {.source = 1, .destination = 0}});
  ASSERT_OK(reader.CopyPages({.key = arena.data(),
                              .value = static_cast<char*>(arena.data()) + kNumLayers * kPlaneBytes,
                              .num_layers = kNumLayers,
                              .key_layer_stride_bytes = kPlaneBytes,
                              .value_layer_stride_bytes = kPlaneBytes,
                              .key_page_bytes = kPageBytes,
                              .value_page_bytes = kPageBytes,
                              .copies = static_cast<const PageCopy*>(copies.data()),
                              .num_copies = 2}));
  const Buffer copied_table = Upload(reader, std::vector<std::int32_t>{3, 0});
  const Buffer reader_spans = Upload(reader, std::vector<TokenSpan>{span});
  for (std::int64_t layer = 0; layer < kNumLayers; ++layer) {
    ASSERT_OK_AND_ASSIGN(Buffer gathered_keys, reader.Allocate(3 * kRowElems * sizeof(float)));
    ASSERT_OK_AND_ASSIGN(Buffer gathered_values, reader.Allocate(3 * kRowElems * sizeof(float)));
    const PagedRows rows = {.pages = LayerOf(arena, layer),
                            .block_table = static_cast<const std::int32_t*>(copied_table.data()),
                            .spans = static_cast<const TokenSpan*>(reader_spans.data()),
                            .num_spans = 1,
                            .num_rows = 3};
    ASSERT_OK(reader.GatherKeyValue({.from = rows, .key = gathered_keys.data(), .value = gathered_values.data()}));
    EXPECT_EQ(Download(reader, std::move(gathered_keys)), keys);
    EXPECT_EQ(Download(reader, std::move(gathered_values)), values);
  }
}

TEST_F(KvPagesTest, ArenasCountAsAllocated) {
  {
    ASSERT_OK_AND_ASSIGN(const Buffer arena, device_->Allocate(30 * kMiB + 5));
    EXPECT_EQ(arena.size_bytes(), 30 * kMiB + 5);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.data()) % 512, 0u);
    EXPECT_EQ(device_->memory_stats().requested_bytes, 30 * kMiB + 5);
  }
  EXPECT_EQ(device_->memory_stats().allocated_bytes, 0);
  ASSERT_OK_AND_ASSIGN(const Buffer empty, device_->Allocate(0));
  EXPECT_EQ(empty.data(), nullptr);
}

TEST_F(KvPagesTest, TooLargeAnArenaIsRefusedWithTheNumbers) {
  ASSERT_OK_AND_ASSIGN(const Buffer half, device_->Allocate(128 * kMiB));
  const absl::Status refused = device_->Allocate(200 * kMiB).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("requested 200.0 MiB")));
  EXPECT_EQ(base::ErrorReason(refused), base::kReasonOutOfMemory);
  EXPECT_OK(device_->Allocate(100 * kMiB));
}

// What an arena leaves behind, lanes get, and the other way round.
TEST_F(KvPagesTest, MemoryMovesBetweenArenasAndLanes) {
  for (int round = 0; round < 3; ++round) {
    EXPECT_OK(device_->Allocate(200 * kMiB));
    ASSERT_OK_AND_ASSIGN(Buffer of_lane, device_->lane(1).Allocate(200 * kMiB));
    of_lane = Buffer();
    EXPECT_OK(Complete(device_->lane(1)));
  }
  EXPECT_EQ(device_->memory_stats().allocated_bytes, 0);
  EXPECT_GT(device_->EmptyMemoryCache(), 0);
  EXPECT_EQ(device_->memory_stats().reserved_bytes, 0);
}

}  // namespace
}  // namespace ridgeline::device
