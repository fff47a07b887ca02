// What a KV cache holds and where in its arena it lies.
//
//   key planes                    value planes                       a plane: one layer's
//   ┌─────────┬─────────┬─ ─ ┬───────────┬───────────┬─ ─┐           [capacity_pages, page_tokens, kv_heads, head_dim]
//   │ layer 0 │ layer 1 │    │  layer 0  │  layer 1  │   │           (values: value_head_dim),
//   └─────────┴─────────┴─ ─ ┴───────────┴───────────┴─ ─┘           its begin aligned to 512 bytes
//
// A page id is the same place in every plane: a page holds its tokens' keys and values of all layers.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "kernels/common/data_type.h"

namespace ridgeline::engine::kv_cache {

inline constexpr std::int64_t kMaxLayers = 4096;
inline constexpr std::int64_t kMaxKvHeads = std::int64_t{1} << 16;
inline constexpr std::int64_t kMaxPageTokens = 256;
inline constexpr std::int64_t kDefaultPageTokens = 16;
inline constexpr std::int64_t kMaxHeadDim = 256;
inline constexpr std::int64_t kHeadDimStep = 8;
inline constexpr std::int64_t kMaxCapacityPages = std::int64_t{1} << 24;  // bookkeeping on the host takes 12 bytes a page
inline constexpr std::int64_t kPlaneAlignmentBytes = 512;

// Checked: no size below overflows.
struct Geometry {
  kernels::DataType data_type;
  std::int64_t layers;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t value_head_dim;
  std::int64_t page_tokens;
  std::int64_t capacity_pages;

  // Of one page in one layer.
  std::int64_t KeyPageBytes() const;
  std::int64_t ValuePageBytes() const;
  // Of one page in all layers.
  std::int64_t PageBytes() const { return layers * (KeyPageBytes() + ValuePageBytes()); }

  // From one layer's plane to the next.
  std::int64_t KeyPlaneBytes() const;
  std::int64_t ValuePlaneBytes() const;
  // Where a layer's plane begins in the arena.
  std::int64_t KeyPlaneOffsetBytes(std::int64_t layer) const { return layer * KeyPlaneBytes(); }
  std::int64_t ValuePlaneOffsetBytes(std::int64_t layer) const { return layers * KeyPlaneBytes() + layer * ValuePlaneBytes(); }
  std::int64_t ArenaBytes() const { return layers * (KeyPlaneBytes() + ValuePlaneBytes()); }

  // Pages of so many tokens.
  std::int64_t PagesFor(std::int64_t tokens) const { return tokens / page_tokens + (tokens % page_tokens != 0 ? 1 : 0); }
};

// As a client asks for it; fields as in ridgeline.v1.KvCache.
struct GeometryRequest {
  std::optional<kernels::DataType> data_type = {};
  std::int64_t layers = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_head_dim = 0;  // 0: as head_dim
  std::int64_t page_tokens = 0;     // 0: kDefaultPageTokens
  std::int64_t capacity_pages = 0;  // exactly one of these two is given, above 0
  std::int64_t capacity_bytes = 0;
};

// Errors: INVALID_ARGUMENT, or UNIMPLEMENTED for a type that caches lack, naming the field "kv_cache.*"; RESOURCE_EXHAUSTED
// (OUT_OF_MEMORY) with the bytes if the arena takes more than `max_arena_bytes`.
absl::StatusOr<Geometry> CheckGeometry(const GeometryRequest& request, std::int64_t max_arena_bytes);

}  // namespace ridgeline::engine::kv_cache
