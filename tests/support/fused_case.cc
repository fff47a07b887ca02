#include "tests/support/fused_case.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/common/rounding.h"
#include "kernels/fused/op_info.h"
#include "tests/support/comparator.h"
#include "tests/support/fused_shapes.h"
#include "tests/support/fused_tolerance.h"

namespace ridgeline::support {

using kernels::ElementBytes;
using kernels::fused::FusedParams;
using kernels::fused::FusedShape;
using kernels::fused::InfoOf;
using kernels::fused::Mode;
using kernels::fused::OpInfo;
using kernels::fused::Use;
using kernels::kv_cache::TokenSpan;

namespace {

// The pointer, of whatever type, as one to memory.
template <typename T>
void** Slot(T*& pointer) {
  return reinterpret_cast<void**>(const_cast<std::remove_const_t<T>**>(&pointer));
}

}  // namespace

std::vector<FusedTensor> TensorsOf(FusedParams& params) {
  const FusedShape& shape = params.shape;
  const std::int64_t element_bytes = ElementBytes(shape.data_type);
  const std::int64_t row_bytes = shape.num_rows * shape.row_elems * element_bytes;
  kernels::kv_cache::AppendParams& append = params.append;
  std::int64_t num_entries = 0, num_pages = 0;
  for (std::int64_t s = 0; s < append.to.num_spans; ++s) {
    const TokenSpan& span = append.to.spans[s];
    const std::int64_t pages = kernels::CeilDivide(span.token_begin + span.num_tokens, append.to.pages.page_tokens);
    num_entries = std::max(num_entries, span.table_begin + pages);
  }
  for (std::int64_t i = 0; i < num_entries; ++i) num_pages = std::max<std::int64_t>(num_pages, append.to.block_table[i] + 1);
  const std::int64_t page_rows = num_pages * append.to.pages.page_tokens;
  const std::vector<FusedTensor> all = {
      {"input", Slot(params.input), row_bytes, element_bytes, false},
      {"other", Slot(params.other), row_bytes, element_bytes, false},
      {"weight", Slot(params.weight), shape.row_elems * element_bytes, element_bytes, false},
      {"bias", Slot(params.bias), shape.row_elems * element_bytes, element_bytes, false},
      {"positions", Slot(params.positions), shape.num_rows * 8, 8, false},
      {"output", Slot(params.output), row_bytes, element_bytes, true},
      {"residual_output", Slot(params.residual_output), row_bytes, element_bytes, true},
      {"mask", Slot(params.mask_output), shape.num_rows * shape.row_elems, 1, true},
      {"keys", Slot(append.key), shape.num_rows * shape.key_elems * element_bytes, 16, false},
      {"values", Slot(append.value), shape.num_rows * shape.value_elems * element_bytes, 16, false},
      {"block_table", Slot(append.to.block_table), num_entries * 4, 16, false},
      {"spans", Slot(append.to.spans), append.to.num_spans * static_cast<std::int64_t>(sizeof(TokenSpan)), 16, false},
      {"key_pages", Slot(append.to.pages.key), page_rows * append.to.pages.KeyRowBytes(), 16, true},
      {"value_pages", Slot(append.to.pages.value), page_rows * append.to.pages.ValueRowBytes(), 16, true}};
  std::vector<FusedTensor> present;
  std::ranges::copy_if(all, std::back_inserter(present), [](const FusedTensor& tensor) { return *tensor.pointer != nullptr; });
  return present;
}

FusedCase::FusedCase(const FusedShape& shape, std::uint64_t seed) : seed_(seed) {
  params_.shape = shape;
  const OpInfo& info = InfoOf(shape.op);
  const std::int64_t elements = shape.has_input ? shape.num_rows * shape.row_elems : 0;
  const auto make = [&](TestTensor& tensor, bool wanted, std::int64_t size, std::uint64_t index) {
    if (!wanted) return;
    tensor = TestTensor(shape.data_type, size);
    tensor.FillNormal(seed * 16 + index);
  };
  make(input_, shape.has_input, elements, 1);
  make(other_, info.other == Use::kRequired, elements, 2);
  make(weight_, info.weight != Use::kNone && shape.has_weight, shape.row_elems, 3);
  make(bias_, info.bias != Use::kNone && shape.has_bias, shape.row_elems, 4);
  if (shape.has_input) output_ = TestTensor(shape.data_type, elements);
  if (info.residual_output == Use::kRequired) residual_output_ = TestTensor(shape.data_type, elements);
  if (info.mask_output != Use::kNone && shape.has_mask) mask_ = GuardedBuffer(elements, /*offset_bytes=*/1);
  if (info.has_rope && shape.has_positions) {
    // Far apart, negative too.
    for (std::int64_t row = 0; row < shape.num_rows; ++row) positions_.push_back((row * 7919 + 3) % 131072 - 100);
  }
}

void FusedCase::Append(std::int64_t page_tokens, const std::vector<TokenSpan>& spans) {
  const FusedShape& shape = params_.shape;
  spans_ = spans;
  block_table_.clear();
  std::int32_t num_pages = 0;
  for (TokenSpan& span : spans_) {
    span.table_begin = static_cast<std::int64_t>(block_table_.size());
    // Pages of tokens that are not appended are nobody's, and far away ones come first.
    for (std::int64_t i = kernels::CeilDivide(span.token_begin + span.num_tokens, page_tokens); i > 0; --i) {
      block_table_.push_back(num_pages + static_cast<std::int32_t>(i) - 1);
    }
    num_pages = static_cast<std::int32_t>(block_table_.size());
  }
  keys_ = TestTensor(shape.data_type, shape.num_rows * shape.key_elems);
  values_ = TestTensor(shape.data_type, shape.num_rows * shape.value_elems);
  keys_.FillNormal(seed_ * 16 + 5);
  values_.FillNormal(seed_ * 16 + 6);
  key_pages_ = TestTensor(shape.data_type, num_pages * page_tokens * shape.key_elems);
  value_pages_ = TestTensor(shape.data_type, num_pages * page_tokens * shape.value_elems);
  params_.append.to.pages = {.data_type = shape.data_type,
                             .kv_heads = 1,
                             .head_dim = shape.key_elems,
                             .value_head_dim = shape.value_elems,
                             .page_tokens = page_tokens,
                             .key = nullptr,
                             .value = nullptr};
}

const FusedParams& FusedCase::params() {
  if (is_filled_) return params_;
  is_filled_ = true;
  const auto address = [](const TestTensor& tensor) -> void* {
    return tensor.elements() > 0 ? tensor.buffer().data() : nullptr;
  };
  params_.input = address(input_);
  params_.other = address(other_);
  params_.weight = address(weight_);
  params_.bias = address(bias_);
  params_.output = address(output_);
  params_.residual_output = address(residual_output_);
  params_.mask_output = InfoOf(shape().op).mask_output != Use::kNone && shape().has_mask
                            ? reinterpret_cast<std::uint8_t*>(mask_.data())
                            : nullptr;
  params_.positions = positions_.empty() ? nullptr : positions_.data();
  if (!spans_.empty()) {
    params_.append.key = address(keys_);
    params_.append.value = address(values_);
    params_.append.to.pages.key = address(key_pages_);
    params_.append.to.pages.value = address(value_pages_);
    params_.append.to.block_table = block_table_.data();
    params_.append.to.spans = spans_.data();
    params_.append.to.num_spans = static_cast<std::int64_t>(spans_.size());
    params_.append.to.num_rows = shape().num_rows;
  }
  inputs_before_ = InputBytes();
  return params_;
}

const reference::FusedResult& FusedCase::want() {
  if (!has_want_) want_ = reference::Fuse(params());
  has_want_ = true;
  return want_;
}

void FusedCase::Poison() {
  for (const FusedTensor& tensor : TensorsOf(params_)) {
    if (tensor.is_output) std::memset(*tensor.pointer, 0xff, tensor.size_bytes);
  }
}

std::vector<std::vector<std::byte>> FusedCase::InputBytes() const {
  std::vector<std::vector<std::byte>> bytes;
  for (const TestTensor* tensor : {&input_, &other_, &weight_, &bias_, &keys_, &values_}) {
    const std::span<const std::byte> from = tensor->bytes();
    bytes.emplace_back(from.begin(), from.end());
  }
  return bytes;
}

std::vector<double> FusedCase::Widened(const TestTensor& tensor) {
  std::vector<double> values(tensor.elements());
  for (std::int64_t i = 0; i < tensor.elements(); ++i) values[i] = tensor.Get(i);
  return values;
}

std::vector<std::uint8_t> FusedCase::mask() const {
  std::vector<std::uint8_t> mask(mask_.size_bytes());
  if (!mask.empty()) std::memcpy(mask.data(), mask_.data(), mask.size());
  return mask;
}

::testing::AssertionResult FusedCase::IsRight(Mode mode) {
  const FusedBound bound = BoundErrors(params(), mode, want());
  const std::string name = Describe(shape()) + " " + Name(mode) + " ";
  const std::vector<std::int64_t> dimensions = {shape().num_rows, shape().row_elems};
  ::testing::AssertionResult result =
      AllWithin(Widened(output_), want_.output, bound.output, {.name = name + "output", .shape = dimensions, .seed = seed_});
  if (!result) return result;
  result = AllWithin(Widened(residual_output_), want_.residual_output, bound.residual_output,
                     {.name = name + "residual", .shape = dimensions, .seed = seed_});
  if (!result) return result;
  if (params_.mask_output != nullptr && mask() != want_.mask) return ::testing::AssertionFailure() << name << "mask is another";
  if (!spans_.empty()) result = PagesAreRight(mode);
  if (!result) return result;
  for (const TestTensor* tensor :
       {&input_, &other_, &weight_, &bias_, &output_, &residual_output_, &keys_, &values_, &key_pages_, &value_pages_}) {
    if (tensor->elements() > 0 && !tensor->buffer().guards_whole()) {
      return ::testing::AssertionFailure() << name << "wrote past the end of a tensor";
    }
  }
  if (mask_.size_bytes() > 0 && !mask_.guards_whole()) return ::testing::AssertionFailure() << name << "wrote past the mask";
  if (InputBytes() != inputs_before_) return ::testing::AssertionFailure() << name << "wrote to an input";
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult FusedCase::PagesAreRight(Mode mode) {
  const FusedBound bound = BoundErrors(params(), mode, want());
  // Which dense row each row of the pages has; others stay as they were.
  const std::int64_t page_tokens = params_.append.to.pages.page_tokens;
  const std::int64_t page_rows = key_pages_.elements() / shape().key_elems;
  std::vector<std::int64_t> dense_rows(page_rows, -1);
  for (const TokenSpan& span : spans_) {
    for (std::int64_t i = 0; i < span.num_tokens; ++i) {
      const std::int64_t token = span.token_begin + i;
      dense_rows[block_table_[span.table_begin + token / page_tokens] * page_tokens + token % page_tokens] = span.row_begin + i;
    }
  }
  for (std::int64_t row = 0; row < page_rows; ++row) {
    const auto elements_of = [row](const TestTensor& pages, std::int64_t elements) {
      const std::int64_t bytes = elements * ElementBytes(pages.type());
      return std::span<const std::byte>(pages.bytes()).subspan(row * bytes, bytes);
    };
    const auto keys = elements_of(key_pages_, shape().key_elems), values = elements_of(value_pages_, shape().value_elems);
    const std::int64_t dense = dense_rows[row];
    if (dense < 0) {
      const auto untouched = [](std::byte b) { return b == GuardedBuffer::kPoison; };
      if (std::ranges::all_of(keys, untouched) && std::ranges::all_of(values, untouched)) continue;
      return ::testing::AssertionFailure() << "row " << row << " of the pages belongs to no token and was written to";
    }
    const std::int64_t value_bytes = shape().value_elems * ElementBytes(values_.type());
    if (!std::ranges::equal(values, std::span<const std::byte>(values_.bytes()).subspan(dense * value_bytes, value_bytes))) {
      return ::testing::AssertionFailure() << "row " << row << " of the pages has other values than row " << dense;
    }
    std::vector<double> got(shape().key_elems);
    for (std::int64_t i = 0; i < shape().key_elems; ++i) got[i] = key_pages_.Get(row * shape().key_elems + i);
    const auto part = [&](const std::vector<double>& all) {
      return std::span<const double>(all).subspan(dense * shape().key_elems, shape().key_elems);
    };
    ::testing::AssertionResult result = AllWithin(got, part(want().keys), part(bound.keys),
                                                  {.name = "keys of row " + std::to_string(dense), .shape = {}, .seed = seed_});
    if (!result) return result;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace ridgeline::support
