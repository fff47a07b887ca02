// Rows into pages, out of them, and pages copied, against plain loops over tokens: every byte that is not asked for stays.
#include "kernels/kv_cache/kv_cache.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/common/data_type.h"
#include "kernels/common/rounding.h"
#include "tests/support/attention_case.h"
#include "tests/unit/kernels/attention_runner.h"
#include "tests/unit/kernels/kv_cache_runner.h"

namespace ridgeline::kernels::kv_cache {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16, DataType::kFloat8E4M3};

Bytes RandomBytes(std::int64_t size_bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(size_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

template <typename T>
std::span<const std::byte> BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// Pages and dense rows full of random bytes, and which rows are whose tokens.
class Batch {
 public:
  // `pages` without pointers.
  Batch(const Pages& pages, std::uint64_t seed) : pages_(pages), random_(seed) {}

  // A sequence of which tokens [token_begin, token_begin + num_tokens) have rows, `gap_rows` after those before.
  void AddSpan(std::int64_t token_begin, std::int64_t num_tokens, std::int64_t gap_rows) {
    const std::int64_t num_entries = CeilDivide(token_begin + num_tokens, pages_.page_tokens);
    spans_.push_back({.row_begin = num_rows_ + gap_rows,
                      .num_tokens = num_tokens,
                      .table_begin = static_cast<std::int64_t>(entries_.size()),
                      .token_begin = token_begin});
    // Entries of pages of which the span has no token lead out of memory.
    for (std::int64_t i = 0; i < num_entries; ++i) {
      const bool used = num_tokens > 0 && i >= token_begin / pages_.page_tokens;
      entries_.push_back(used ? static_cast<std::int32_t>(num_pages_++) : kNoPage);
    }
    entries_.push_back(kNoPage);
    num_rows_ += gap_rows + num_tokens;
  }

  void AddRandomSpans(int count) {
    for (int i = 0; i < count; ++i) {
      const std::int64_t most = Draw(0, 2) == 0 ? 3 : 3 * pages_.page_tokens;
      AddSpan(Draw(0, 3 * pages_.page_tokens), Draw(0, 6) == 0 ? 0 : Draw(0, most + 1), Draw(0, 3));
    }
  }

  // No spans after this. Some pages belong to nobody, and some rows at the end.
  void Fill() {
    num_pages_ += 2;
    num_rows_ += 2;
    std::vector<std::int32_t> order(num_pages_);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (std::int32_t& entry : entries_) {
      if (entry != kNoPage) entry = order[entry];
    }
    key_pages_ = RandomBytes(num_pages_ * pages_.page_tokens * pages_.KeyRowBytes(), random_());
    value_pages_ = RandomBytes(num_pages_ * pages_.page_tokens * pages_.ValueRowBytes(), random_());
    key_rows_ = RandomBytes(num_rows_ * pages_.KeyRowBytes(), random_());
    value_rows_ = RandomBytes(num_rows_ * pages_.ValueRowBytes(), random_());
  }

  void ExpectAppends() const {
    const OnDevice on_device(*this);
    RunAppend({.to = on_device.Rows(), .key = on_device.key_rows.as<void>(), .value = on_device.value_rows.as<void>()});
    Batch want = *this;
    ForEachToken([&](std::int64_t row, std::int64_t paged_row) {
      CopyRow(key_rows_, row, want.key_pages_, paged_row, pages_.KeyRowBytes());
      CopyRow(value_rows_, row, want.value_pages_, paged_row, pages_.ValueRowBytes());
    });
    on_device.Expect(want);
  }

  void ExpectGathers() const {
    const OnDevice on_device(*this);
    RunGather({.from = on_device.Rows(), .key = on_device.key_rows.as<void>(), .value = on_device.value_rows.as<void>()});
    Batch want = *this;
    ForEachToken([&](std::int64_t row, std::int64_t paged_row) {
      CopyRow(key_pages_, paged_row, want.key_rows_, row, pages_.KeyRowBytes());
      CopyRow(value_pages_, paged_row, want.value_rows_, row, pages_.ValueRowBytes());
    });
    on_device.Expect(want);
  }

 private:
  static constexpr std::int32_t kNoPage = 0x7f7f7f7f;

  struct OnDevice {
    explicit OnDevice(const Batch& batch)
        : pages(batch.pages_),
          num_spans(static_cast<std::int64_t>(batch.spans_.size())),
          num_rows(batch.num_rows_),
          key_pages(batch.key_pages_),
          value_pages(batch.value_pages_),
          key_rows(batch.key_rows_),
          value_rows(batch.value_rows_),
          entries(BytesOf(batch.entries_)),
          spans(BytesOf(batch.spans_)) {}

    PagedRows Rows() const {
      PagedRows rows = {.pages = pages,
                        .block_table = entries.as<std::int32_t>(),
                        .spans = spans.as<TokenSpan>(),
                        .num_spans = num_spans,
                        .num_rows = num_rows};
      rows.pages.key = key_pages.as<void>();
      rows.pages.value = value_pages.as<void>();
      return rows;
    }

    void Expect(const Batch& want) const {
      EXPECT_TRUE(key_pages.Hold(want.key_pages_));
      EXPECT_TRUE(value_pages.Hold(want.value_pages_));
      EXPECT_TRUE(key_rows.Hold(want.key_rows_));
      EXPECT_TRUE(value_rows.Hold(want.value_rows_));
      EXPECT_TRUE(entries.Hold(BytesOf(want.entries_)));
      EXPECT_TRUE(spans.Hold(BytesOf(want.spans_)));
      for (const DeviceBytes* memory : {&key_pages, &value_pages, &key_rows, &value_rows, &entries, &spans}) {
        EXPECT_TRUE(memory->guards_whole());
      }
    }

    const Pages pages;
    const std::int64_t num_spans, num_rows;
    const DeviceBytes key_pages, value_pages, key_rows, value_rows, entries, spans;
  };

  std::int64_t Draw(std::int64_t begin, std::int64_t end) {
    return std::uniform_int_distribution<std::int64_t>(begin, end - 1)(random_);
  }

  template <typename Body>
  void ForEachToken(const Body& body) const {
    for (const TokenSpan& span : spans_) {
      for (std::int64_t i = 0; i < span.num_tokens; ++i) {
        const std::int64_t token = span.token_begin + i;
        const std::int64_t page = entries_[span.table_begin + token / pages_.page_tokens];
        body(span.row_begin + i, page * pages_.page_tokens + token % pages_.page_tokens);
      }
    }
  }

  static void CopyRow(const Bytes& from, std::int64_t from_row, Bytes& to, std::int64_t to_row, std::int64_t row_bytes) {
    std::copy_n(from.begin() + from_row * row_bytes, row_bytes, to.begin() + to_row * row_bytes);
  }

  Pages pages_;
  std::mt19937_64 random_;
  std::vector<TokenSpan> spans_;
  std::vector<std::int32_t> entries_;
  std::int64_t num_pages_ = 0;
  std::int64_t num_rows_ = 0;
  Bytes key_pages_, value_pages_, key_rows_, value_rows_;
};

class KvCacheKernelTest : public ::testing::TestWithParam<DataType> {
 protected:
  Pages Geometry(std::int64_t kv_heads, std::int64_t head_dim, std::int64_t value_head_dim, std::int64_t page_tokens) const {
    return {.data_type = GetParam(),
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .value_head_dim = value_head_dim,
            .page_tokens = page_tokens,
            .key = nullptr,
            .value = nullptr};
  }

  static void ExpectMoves(Batch& batch) {
    batch.Fill();
    batch.ExpectAppends();
    batch.ExpectGathers();
  }
};

INSTANTIATE_TEST_SUITE_P(Types, KvCacheKernelTest, ::testing::ValuesIn(kTypes),
                         [](const auto& type) { return std::string(Name(type.param)); });

// Rows of one word, of 24 bytes, of pieces that are whole and that are not; keys shorter than values and longer.
TEST_P(KvCacheKernelTest, MovesItsTokensAndNothingElse) {
  std::uint64_t index = 0;
  for (const std::int64_t page_tokens : {1, 7, 16, 64, 256}) {
    for (const Pages& pages : {Geometry(1, 8, 8, page_tokens), Geometry(1, 24, 8, page_tokens),
                               Geometry(3, 40, 72, page_tokens), Geometry(2, 128, 64, page_tokens)}) {
      const std::uint64_t seed = support::DeriveSeed("spans", index++);
      SCOPED_TRACE("pages of " + std::to_string(page_tokens) + " tokens, head_dim " + std::to_string(pages.head_dim) +
                   ", seed " + std::to_string(seed));
      Batch batch(pages, seed);
      batch.AddRandomSpans(9);
      ExpectMoves(batch);
    }
  }
}

TEST_P(KvCacheKernelTest, RowsOfManyPieces) {
  Batch batch(Geometry(64, 256, 256, 3), support::DeriveSeed("wide"));
  batch.AddSpan(2, 5, 1);
  batch.AddSpan(0, 1, 0);
  ExpectMoves(batch);
}

// A step of many sequences that decode, between others that do nothing.
TEST_P(KvCacheKernelTest, OneTokenOfManySequences) {
  Batch batch(Geometry(2, 64, 64, 16), support::DeriveSeed("steps"));
  for (std::int64_t i = 0; i < 300; ++i) batch.AddSpan(i % 40, i % 3 > 0 ? 1 : 0, 0);
  ExpectMoves(batch);
}

TEST_P(KvCacheKernelTest, NothingToMove) {
  Batch no_spans(Geometry(1, 64, 64, 16), 1);
  ExpectMoves(no_spans);
  Batch empty_spans(Geometry(1, 64, 64, 16), 2);
  for (const std::int64_t token_begin : {0, 15, 16}) empty_spans.AddSpan(token_begin, 0, 1);
  ExpectMoves(empty_spans);
}

// More pieces than a grid has warps.
TEST_P(KvCacheKernelTest, MillionsOfRows) {
  Batch batch(Geometry(1, 8, 8, 100), support::DeriveSeed("millions"));
  batch.AddSpan(50, 2'200'000, 0);
  ExpectMoves(batch);
}

TEST_P(KvCacheKernelTest, CopiesPagesOfEveryLayer) {
  constexpr std::int64_t kNumPages = 6, kNumLayers = 3, kPaddingBytes = 48;
  const std::vector<PageCopy> copies = {
      {.source = 5, .destination = 0}, {.source = 2, .destination = 4}, {.source = 5, .destination = 1}};
  for (const std::int64_t page_tokens : {1, 7, 256}) {
    const Pages pages = Geometry(1, 24, 40, page_tokens);
    const std::int64_t key_bytes = page_tokens * pages.KeyRowBytes(), value_bytes = page_tokens * pages.ValueRowBytes();
    const std::int64_t key_stride = RoundUp(kNumPages * key_bytes, 16) + kPaddingBytes;
    const std::int64_t value_stride = RoundUp(kNumPages * value_bytes, 16) + kPaddingBytes;
    Bytes keys = RandomBytes(kNumLayers * key_stride, 1), values = RandomBytes(kNumLayers * value_stride, 2);
    const DeviceBytes device_keys(keys), device_values(values), device_copies(BytesOf(copies));
    CopyPagesParams params = {.key = device_keys.as<void>(),
                              .value = device_values.as<void>(),
                              .num_layers = kNumLayers,
                              .key_layer_stride_bytes = key_stride,
                              .value_layer_stride_bytes = value_stride,
                              .key_page_bytes = key_bytes,
                              .value_page_bytes = value_bytes,
                              .copies = device_copies.as<PageCopy>(),
                              .num_copies = 0};
    RunCopyPages(params);
    EXPECT_TRUE(device_keys.Hold(keys));
    params.num_copies = static_cast<std::int64_t>(copies.size());
    RunCopyPages(params);
    for (std::int64_t layer = 0; layer < kNumLayers; ++layer) {
      for (const PageCopy& copy : copies) {
        std::copy_n(keys.begin() + layer * key_stride + copy.source * key_bytes, key_bytes,
                    keys.begin() + layer * key_stride + copy.destination * key_bytes);
        std::copy_n(values.begin() + layer * value_stride + copy.source * value_bytes, value_bytes,
                    values.begin() + layer * value_stride + copy.destination * value_bytes);
      }
    }
    EXPECT_TRUE(device_keys.Hold(keys)) << page_tokens;
    EXPECT_TRUE(device_values.Hold(values)) << page_tokens;
    EXPECT_TRUE(device_copies.Hold(BytesOf(copies)));
    for (const DeviceBytes* memory : {&device_keys, &device_values, &device_copies}) EXPECT_TRUE(memory->guards_whole());
  }
}

// Pages, and a layer, that begin past what 32 bits count in bytes.
TEST_P(KvCacheKernelTest, PagesFarAway) {
  constexpr std::int64_t kPageTokens = 7, kRows = 9;
  Pages pages = Geometry(3, 64, 64, kPageTokens);
  const std::int64_t row_bytes = pages.KeyRowBytes(), page_bytes = kPageTokens * row_bytes;
  const std::int32_t far_page = static_cast<std::int32_t>((std::int64_t{1} << 32) / page_bytes + 1);
  const attention::DeviceMemory key((far_page + 2) * page_bytes), value((far_page + 2) * page_bytes);
  if (!key.allocated() || !value.allocated()) GTEST_SKIP() << "this device does not hand out that much memory";
  pages.key = key.data();
  pages.value = value.data();
  const Bytes rows = RandomBytes(kRows * row_bytes, 1), nothing(kRows * row_bytes);
  const std::vector<std::int32_t> entries = {far_page, 3};
  const std::vector<TokenSpan> spans = {{.row_begin = 0, .num_tokens = kRows, .table_begin = 0, .token_begin = 2}};
  const std::vector<PageCopy> copies = {{.source = far_page, .destination = far_page + 1}, {.source = 3, .destination = 0}};
  const DeviceBytes device_rows(rows), gathered_keys(nothing), gathered_values(nothing), device_copies(BytesOf(copies));
  const DeviceBytes device_entries(BytesOf(entries)), device_spans(BytesOf(spans));
  const PagedRows paged = {.pages = pages,
                           .block_table = device_entries.as<std::int32_t>(),
                           .spans = device_spans.as<TokenSpan>(),
                           .num_spans = 1,
                           .num_rows = kRows};
  RunAppend({.to = paged, .key = device_rows.as<void>(), .value = device_rows.as<void>()});
  RunGather({.from = paged, .key = gathered_keys.as<void>(), .value = gathered_values.as<void>()});
  EXPECT_TRUE(gathered_keys.Hold(rows));
  EXPECT_TRUE(gathered_values.Hold(rows));
  const auto first_rows = std::span(rows).first(5 * row_bytes);  // in places 2 to 6 of the far page
  EXPECT_TRUE(std::ranges::equal(key.Read(far_page * page_bytes + 2 * row_bytes, 5 * row_bytes), first_rows));

  RunCopyPages({.key = key.data(),
                .value = value.data(),
                .num_layers = 1,
                .key_layer_stride_bytes = 0,
                .value_layer_stride_bytes = 0,
                .key_page_bytes = page_bytes,
                .value_page_bytes = page_bytes,
                .copies = device_copies.as<PageCopy>(),
                .num_copies = 2});
  EXPECT_TRUE(std::ranges::equal(key.Read((far_page + 1) * page_bytes + 2 * row_bytes, 5 * row_bytes), first_rows));
  EXPECT_TRUE(std::ranges::equal(value.Read(0, 4 * row_bytes), std::span(rows).last(4 * row_bytes)));
}

}  // namespace
}  // namespace ridgeline::kernels::kv_cache
