#include "tests/unit/engine/kv_cache/token_memory.h"

#include <cstring>

#include "gtest/gtest.h"

namespace ridgeline::engine::kv_cache {
namespace {

std::byte* Arena(const SequenceUse& use) { return static_cast<std::byte*>(use.arena().data()); }

// Where one token of one sequence lies.
struct Place {
  std::byte* key;
  std::byte* value;
};

Place PlaceOf(const SequenceUse& use, std::size_t row, std::int64_t token) {
  const Geometry& geometry = use.geometry();
  const UsedSequence& sequence = use.sequences()[row];
  const std::int64_t entry = token / geometry.page_tokens;
  const auto head_size = static_cast<std::int64_t>(sequence.table_head.size());
  const std::int32_t page = entry < head_size ? sequence.table_head[entry] : sequence.table_tail.at(entry - head_size);
  const std::int64_t slot = token % geometry.page_tokens;
  return {.key = Arena(use) + geometry.KeyPlaneOffsetBytes(use.layer()) + page * geometry.KeyPageBytes() +
                 slot * (geometry.KeyPageBytes() / geometry.page_tokens),
          .value = Arena(use) + geometry.ValuePlaneOffsetBytes(use.layer()) + page * geometry.ValuePageBytes() +
                   slot * (geometry.ValuePageBytes() / geometry.page_tokens)};
}

}  // namespace

void CopyPages(const SequenceUse& use) {
  const Geometry& geometry = use.geometry();
  for (const auto& copy : use.page_copies()) {
    for (std::int64_t layer = 0; layer < geometry.layers; ++layer) {
      std::byte* const keys = Arena(use) + geometry.KeyPlaneOffsetBytes(layer);
      std::memcpy(keys + copy.destination * geometry.KeyPageBytes(), keys + copy.source * geometry.KeyPageBytes(),
                  geometry.KeyPageBytes());
      std::byte* const values = Arena(use) + geometry.ValuePlaneOffsetBytes(layer);
      std::memcpy(values + copy.destination * geometry.ValuePageBytes(), values + copy.source * geometry.ValuePageBytes(),
                  geometry.ValuePageBytes());
    }
  }
}

void WriteTokens(const SequenceUse& use, std::size_t row, const Tokens& tokens) {
  const UsedSequence& sequence = use.sequences()[row];
  ASSERT_EQ(static_cast<std::int64_t>(tokens.size()), sequence.end_tokens - sequence.begin_tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Place place = PlaceOf(use, row, sequence.begin_tokens + static_cast<std::int64_t>(i));
    std::memcpy(place.key, &tokens[i], sizeof(tokens[i]));
    std::memcpy(place.value, &tokens[i], sizeof(tokens[i]));
  }
}

Tokens ReadTokens(const SequenceUse& use, std::size_t row) {
  Tokens tokens;
  for (std::int64_t i = 0; i < use.sequences()[row].end_tokens; ++i) {
    const Place place = PlaceOf(use, row, i);
    std::int64_t key = 0;
    std::int64_t value = 0;
    std::memcpy(&key, place.key, sizeof(key));
    std::memcpy(&value, place.value, sizeof(value));
    tokens.push_back(key == value ? key : -1);
  }
  return tokens;
}

}  // namespace ridgeline::engine::kv_cache
