// Keys and values of a paged problem as a cache holds them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention/attention.h"
#include "tests/support/attention_shapes.h"
#include "tests/support/test_tensor.h"

namespace ridgeline::support {

// Pages in an order drawn from the seed, among them some that no sequence has. Poison, NaN or the large number of bytes 0x7f,
// fills what belongs to no token: other pages, what is left of a page after the last token, and table entries after a
// sequence's last page, which lead out of the pages.
class PagedKeyValue {
 public:
  // Copies the tokens of dense `key` and `value`, which `sequences` describe.
  PagedKeyValue(const kernels::attention::AttentionShape& shape, const AttentionProblem& problem,
                std::span<const kernels::attention::Sequence> sequences, const TestTensor& key, const TestTensor& value,
                std::uint64_t seed);

  // Makes `params`, of the dense problem, those of the paged one.
  void PutInto(kernels::attention::AttentionParams& params) const;

  const TestTensor& key() const { return key_; }                  // [num_pages, page_tokens, Hkv, D]
  const TestTensor& value() const { return value_; }              // [num_pages, page_tokens, Hkv, Dv]
  const TestTensor& block_table() const { return block_table_; }  // int32 page ids
  const std::vector<kernels::attention::Sequence>& sequences() const { return sequences_; }

 private:
  void LayOutTable(const AttentionProblem& problem, std::uint64_t seed, std::byte poison);
  TestTensor PutInPages(const TestTensor& tokens, std::span<const kernels::attention::Sequence> sequences,
                        std::int64_t row_elems, std::byte poison) const;
  std::int32_t Page(std::int64_t entry) const;

  std::int64_t page_tokens_;
  std::int64_t num_pages_ = 0;
  std::vector<kernels::attention::Sequence> sequences_;
  TestTensor block_table_, key_, value_;
};

}  // namespace ridgeline::support
