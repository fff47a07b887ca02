#include "server/engine/kv_cache/geometry.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/saturating.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/base/units.h"

namespace ridgeline::engine::kv_cache {
namespace {

using base::InvalidField;
using kernels::SaturatingMultiply;

std::int64_t RoundUpToAlignment(std::int64_t bytes) {
  const std::int64_t remainder = bytes % kPlaneAlignmentBytes;
  return remainder == 0 ? bytes : kernels::SaturatingAdd(bytes, kPlaneAlignmentBytes - remainder);
}

std::int64_t RowsBytes(const Geometry& geometry, std::int64_t head_dim) {
  return geometry.page_tokens * geometry.kv_heads * head_dim * kernels::ElementBytes(geometry.data_type);
}

absl::Status CheckBetween(const char* field, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("is ", value, "; ", least, " to ", most, " is allowed"));
}

absl::Status CheckHeadDim(const char* field, std::int64_t value) {
  if (value >= 1 && value <= kMaxHeadDim && value % kHeadDimStep == 0) return absl::OkStatus();
  return InvalidField(field,
                      absl::StrCat("is ", value, "; a multiple of ", kHeadDimStep, " up to ", kMaxHeadDim, " is needed"));
}

absl::Status CheckDataType(kernels::DataType type) {
  using kernels::DataType;
  constexpr char kField[] = "kv_cache.data_type";
  if (type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBFloat16) return absl::OkStatus();
  const std::string message = absl::StrCat("is ", kernels::Name(type), "; caches hold float32, float16 or bfloat16");
  const bool is_integer = type == DataType::kInt32 || type == DataType::kInt64 || type == DataType::kUint8;
  return is_integer ? InvalidField(kField, message) : base::Unsupported(kField, message);
}

// All but the capacity.
absl::StatusOr<Geometry> CheckPage(const GeometryRequest& request) {
  if (!request.data_type.has_value()) {
    return InvalidField("kv_cache.data_type", "is not given; float32, float16 or bfloat16 is needed");
  }
  RIDGELINE_RETURN_IF_ERROR(CheckDataType(*request.data_type));
  RIDGELINE_RETURN_IF_ERROR(CheckBetween("kv_cache.layers", request.layers, 1, kMaxLayers));
  RIDGELINE_RETURN_IF_ERROR(CheckBetween("kv_cache.kv_heads", request.kv_heads, 1, kMaxKvHeads));
  RIDGELINE_RETURN_IF_ERROR(CheckHeadDim("kv_cache.head_dim", request.head_dim));
  const std::int64_t value_head_dim = request.value_head_dim == 0 ? request.head_dim : request.value_head_dim;
  RIDGELINE_RETURN_IF_ERROR(CheckHeadDim("kv_cache.value_head_dim", value_head_dim));
  const std::int64_t page_tokens = request.page_tokens == 0 ? kDefaultPageTokens : request.page_tokens;
  RIDGELINE_RETURN_IF_ERROR(CheckBetween("kv_cache.page_tokens", page_tokens, 1, kMaxPageTokens));
  return Geometry{.data_type = *request.data_type,
                  .layers = request.layers,
                  .kv_heads = request.kv_heads,
                  .head_dim = request.head_dim,
                  .value_head_dim = value_head_dim,
                  .page_tokens = page_tokens,
                  .capacity_pages = 0};
}

absl::StatusOr<std::int64_t> CheckCapacityPages(const GeometryRequest& request, std::int64_t page_bytes) {
  if ((request.capacity_pages == 0) == (request.capacity_bytes == 0)) {
    return InvalidField("kv_cache.capacity_pages", absl::StrCat("is ", request.capacity_pages, " and capacity_bytes is ",
                                                                request.capacity_bytes, "; exactly one of them is needed"));
  }
  if (request.capacity_bytes == 0) {
    RIDGELINE_RETURN_IF_ERROR(CheckBetween("kv_cache.capacity_pages", request.capacity_pages, 1, kMaxCapacityPages));
    return request.capacity_pages;
  }
  if (request.capacity_bytes < page_bytes) {
    return InvalidField(
        "kv_cache.capacity_bytes",
        absl::StrCat("is ", request.capacity_bytes, "; one page of all layers takes ", base::FormatBytes(page_bytes)));
  }
  const std::int64_t pages = request.capacity_bytes / page_bytes;
  if (pages > kMaxCapacityPages) {
    return InvalidField("kv_cache.capacity_bytes", absl::StrCat("is ", request.capacity_bytes, ", which is ", pages, " pages; ",
                                                                kMaxCapacityPages, " are allowed: set a larger page_tokens"));
  }
  return pages;
}

// In arithmetic that cannot overflow; Geometry's own may be used once this is small enough.
std::int64_t ArenaBytesOf(const Geometry& geometry) {
  const std::int64_t key_bytes = RoundUpToAlignment(SaturatingMultiply({geometry.KeyPageBytes(), geometry.capacity_pages}));
  const std::int64_t value_bytes = RoundUpToAlignment(SaturatingMultiply({geometry.ValuePageBytes(), geometry.capacity_pages}));
  return SaturatingMultiply({geometry.layers, kernels::SaturatingAdd(key_bytes, value_bytes)});
}

}  // namespace

// At most 256 tokens * 65536 heads * 256 * 4 bytes: far from overflow, and so are 4096 layers of that.
std::int64_t Geometry::KeyPageBytes() const { return RowsBytes(*this, head_dim); }
std::int64_t Geometry::ValuePageBytes() const { return RowsBytes(*this, value_head_dim); }

std::int64_t Geometry::KeyPlaneBytes() const { return RoundUpToAlignment(capacity_pages * KeyPageBytes()); }
std::int64_t Geometry::ValuePlaneBytes() const { return RoundUpToAlignment(capacity_pages * ValuePageBytes()); }

absl::StatusOr<Geometry> CheckGeometry(const GeometryRequest& request, std::int64_t max_arena_bytes) {
  RIDGELINE_ASSIGN_OR_RETURN(Geometry geometry, CheckPage(request));
  RIDGELINE_ASSIGN_OR_RETURN(geometry.capacity_pages, CheckCapacityPages(request, geometry.PageBytes()));
  // What saturated is more than any memory, whatever the limit says.
  const std::int64_t limit_bytes = std::min(max_arena_bytes, std::int64_t{1} << 62);
  const std::int64_t arena_bytes = ArenaBytesOf(geometry);
  if (arena_bytes > limit_bytes) {
    return base::WithReason(absl::ResourceExhaustedError(absl::StrCat(
                                "the cache would take ", base::FormatBytes(arena_bytes), " of device memory (",
                                geometry.capacity_pages, " pages); the limit is ", base::FormatBytes(limit_bytes))),
                            base::kReasonOutOfMemory);
  }
  return geometry;
}

}  // namespace ridgeline::engine::kv_cache
