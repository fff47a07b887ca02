#include "tests/support/paged_key_value.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "kernels/common/rounding.h"
#include "tests/support/attention_shapes.h"
#include "tests/support/test_tensor.h"

namespace ridgeline::support {

using kernels::CeilDivide;
using kernels::DataType;
using kernels::attention::AttentionParams;
using kernels::attention::AttentionShape;
using kernels::attention::Sequence;

PagedKeyValue::PagedKeyValue(const AttentionShape& shape, const AttentionProblem& problem, std::span<const Sequence> sequences,
                             const TestTensor& key, const TestTensor& value, std::uint64_t seed)
    : page_tokens_(problem.page_tokens), sequences_(sequences.begin(), sequences.end()) {
  const std::byte poison{static_cast<unsigned char>(seed % 2 == 0 ? 0xff : 0x7f)};
  LayOutTable(problem, seed, poison);
  key_ = PutInPages(key, sequences, shape.kv_heads * shape.head_dim, poison);
  value_ = PutInPages(value, sequences, shape.kv_heads * shape.value_head_dim, poison);
}

void PagedKeyValue::LayOutTable(const AttentionProblem& problem, std::uint64_t seed, std::byte poison) {
  std::mt19937_64 random(seed);
  for (const Sequence& sequence : sequences_) num_pages_ += CeilDivide(sequence.key_tokens, page_tokens_);
  num_pages_ += 1 + static_cast<std::int64_t>(random() % 4);
  std::vector<std::int32_t> free_pages(num_pages_);
  std::iota(free_pages.begin(), free_pages.end(), 0);
  std::shuffle(free_pages.begin(), free_pages.end(), random);

  std::int32_t no_page;
  std::memset(&no_page, std::to_integer<int>(poison), sizeof(no_page));
  std::vector<std::int32_t> entries;
  for (std::size_t s = 0; s < sequences_.size(); ++s) {
    Sequence& sequence = sequences_[s];
    sequence.key_begin = static_cast<std::int64_t>(entries.size());
    const std::int64_t shared_pages = s == 0 ? 0 : problem.SharedTokens(s) / page_tokens_;
    for (std::int64_t page = 0; page < CeilDivide(sequence.key_tokens, page_tokens_); ++page) {
      if (page < shared_pages) {
        entries.push_back(entries[page]);
      } else {
        entries.push_back(free_pages.back());
        free_pages.pop_back();
      }
    }
    entries.insert(entries.end(), random() % 3, no_page);
  }
  block_table_ = TestTensor(DataType::kInt32, static_cast<std::int64_t>(entries.size()));
  std::ranges::copy(std::as_bytes(std::span(entries)), block_table_.bytes().begin());
}

TestTensor PagedKeyValue::PutInPages(const TestTensor& tokens, std::span<const Sequence> sequences, std::int64_t row_elems,
                                     std::byte poison) const {
  const std::int64_t row_bytes = row_elems * kernels::ElementBytes(tokens.type());
  TestTensor pages(tokens.type(), num_pages_ * page_tokens_ * row_elems);
  std::ranges::fill(pages.bytes(), poison);
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    for (std::int64_t token = 0; token < sequences[s].key_tokens; ++token) {
      const std::int64_t page = Page(sequences_[s].key_begin + token / page_tokens_);
      std::ranges::copy(tokens.bytes().subspan((sequences[s].key_begin + token) * row_bytes, row_bytes),
                        pages.bytes().begin() + (page * page_tokens_ + token % page_tokens_) * row_bytes);
    }
  }
  return pages;
}

std::int32_t PagedKeyValue::Page(std::int64_t entry) const {
  return reinterpret_cast<const std::int32_t*>(block_table_.buffer().data())[entry];
}

void PagedKeyValue::PutInto(AttentionParams& params) const {
  params.shape.page_tokens = page_tokens_;
  params.sequences = sequences_.data();
  params.key = key_.buffer().data();
  params.value = value_.buffer().data();
  params.block_table = reinterpret_cast<const std::int32_t*>(block_table_.buffer().data());
}

}  // namespace ridgeline::support
