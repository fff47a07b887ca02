#include "tests/support/attention_case.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "tests/reference/attention_reference.h"
#include "tests/support/attention_shapes.h"
#include "tests/support/attention_tolerance.h"
#include "tests/support/comparator.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/test_tensor.h"

namespace ridgeline::support {
namespace {

using kernels::DataType;
using kernels::attention::AttentionParams;
using kernels::attention::kUnlimitedWindow;
using kernels::attention::Sequence;

constexpr std::uint64_t kDefaultSeed = 20240229;

}  // namespace

std::uint64_t TestSeed() {
  const char* const text = std::getenv("RIDGELINE_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : kDefaultSeed;
}

std::uint64_t DeriveSeed(std::string_view part, std::uint64_t index) {
  std::uint64_t seed = TestSeed() + index;
  for (const char c : part) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3;  // FNV-1a
  return seed;
}

AttentionCase::AttentionCase(AttentionProblem problem, AttentionOptions options, DataType type, std::uint64_t seed)
    : problem_(std::move(problem)), options_(std::move(options)), seed_(seed), page_seed_(seed) {
  const std::int64_t right = options_.causal ? 0 : kUnlimitedWindow;
  shape_ = {.data_type = type,
            .output_data_type = options_.output_data_type.value_or(type),
            .num_sequences = static_cast<std::int64_t>(problem_.query_tokens.size()),
            .query_heads = problem_.query_heads,
            .kv_heads = problem_.kv_heads,
            .head_dim = problem_.head_dim,
            .value_head_dim = problem_.value_head_dim,
            .window_left = options_.window_left.value_or(kUnlimitedWindow),
            .window_right = std::min(right, options_.window_right.value_or(kUnlimitedWindow))};
  LayOutSequences();
  query_ = TestTensor(type, query_tokens_ * shape_.query_heads * shape_.head_dim);
  key_ = TestTensor(type, key_tokens_ * shape_.kv_heads * shape_.head_dim);
  value_ = TestTensor(type, key_tokens_ * shape_.kv_heads * shape_.value_head_dim);
  output_ = TestTensor(shape_.output_data_type, query_tokens_ * shape_.query_heads * shape_.value_head_dim);
  if (options_.log_sum_exp) log_sum_exp_ = TestTensor(DataType::kFloat32, query_tokens_ * shape_.query_heads);
  query_.FillNormal(seed);
  key_.FillNormal(seed + 1);
  value_.FillNormal(seed + 2);
  ShareKeys();
  FillOptions();
  PoisonUnownedKeys();
}

std::string AttentionCase::name() const {
  return problem_.name + " " + kernels::Name(shape_.data_type) + " " + options_.name + " seed " + std::to_string(seed_);
}

void AttentionCase::LayOutSequences() {
  for (std::size_t s = 0; s < problem_.query_tokens.size(); ++s) {
    sequences_.push_back({.query_begin = query_tokens_,
                          .query_tokens = problem_.query_tokens[s],
                          .key_begin = key_tokens_,
                          .key_tokens = problem_.key_tokens[s],
                          .lse_begin = problem_.ragged() ? query_tokens_ : query_tokens_ * problem_.query_heads});
    query_tokens_ += problem_.query_tokens[s];
    key_tokens_ += problem_.dense_key_tokens.value_or(problem_.key_tokens[s]);
  }
}

void AttentionCase::FillOptions() {
  std::mt19937_64 random(seed_ + 3);
  std::uniform_real_distribution<double> uniform;
  if (options_.alibi) {
    alibi_slopes_ = TestTensor(DataType::kFloat32, shape_.query_heads);
    for (std::int64_t h = 0; h < shape_.query_heads; ++h) {
      alibi_slopes_.Set(h, std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(shape_.query_heads)));
    }
  }
  if (options_.sink != Sink::kNone) {
    sink_logits_ = TestTensor(DataType::kFloat32, shape_.query_heads);
    sink_logits_.FillNormal(seed_ + 4);
    for (std::int64_t h = 0; h < shape_.query_heads && options_.sink == Sink::kSomeMinusInfinity; h += 2) {
      sink_logits_.Set(h, -std::numeric_limits<double>::infinity());
    }
  }
  if (options_.bias != Bias::kNone) {
    const bool batch_shared = options_.bias == Bias::kSharedByBatch || options_.bias == Bias::kSharedByAll;
    const bool heads_shared = options_.bias == Bias::kSharedByHeads || options_.bias == Bias::kSharedByAll;
    const std::int64_t query_tokens = shape_.num_sequences > 0 ? problem_.query_tokens[0] : 0;
    bias_shape_ = {batch_shared ? 1 : shape_.num_sequences, heads_shared ? 1 : shape_.query_heads, query_tokens,
                   *problem_.dense_key_tokens};
    bias_ = TestTensor(DataType::kFloat32,
                       std::accumulate(bias_shape_.begin(), bias_shape_.end(), std::int64_t{1}, std::multiplies<>()));
    bias_.FillNormal(seed_ + 5);
    for (std::int64_t i = 0; i < bias_.elements() && options_.bias == Bias::kSomeMinusInfinity; ++i) {
      const bool first_row = i / bias_shape_[3] % bias_shape_[2] == 0;  // a row of which nothing is left
      if (first_row || uniform(random) < 0.3) bias_.Set(i, -std::numeric_limits<double>::infinity());
    }
  }
}

// The tokens of shared pages are the first sequence's.
void AttentionCase::ShareKeys() {
  for (std::size_t s = 1; s < sequences_.size(); ++s) {
    const std::int64_t tokens = problem_.SharedTokens(s);
    for (TestTensor* tensor : {&key_, &value_}) {
      const std::int64_t row = shape_.kv_heads * (tensor == &key_ ? shape_.head_dim : shape_.value_head_dim);
      for (std::int64_t i = 0; i < tokens * row; ++i) tensor->Set(sequences_[s].key_begin * row + i, tensor->Get(i));
    }
  }
}

void AttentionCase::PoisonUnownedKeys() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Sequence& sequence : sequences_) {
    const std::int64_t stored = problem_.dense_key_tokens.value_or(sequence.key_tokens);
    const std::int64_t key_row = shape_.kv_heads * shape_.head_dim;
    const std::int64_t value_row = shape_.kv_heads * shape_.value_head_dim;
    const std::int64_t begin = sequence.key_begin + sequence.key_tokens;
    const std::int64_t end = sequence.key_begin + stored;
    for (std::int64_t i = begin * key_row; i < end * key_row; ++i) key_.Set(i, nan);
    for (std::int64_t i = begin * value_row; i < end * value_row; ++i) value_.Set(i, nan);
  }
  if (bias_.elements() == 0) return;
  // A bias shared by the batch is owned as far as the longest sequence.
  const auto [batches, heads, rows, columns] = std::array{bias_shape_[0], bias_shape_[1], bias_shape_[2], bias_shape_[3]};
  for (std::int64_t b = 0; b < batches; ++b) {
    const std::int64_t owned = batches > 1 ? problem_.key_tokens[b] : std::ranges::max(problem_.key_tokens);
    for (std::int64_t row = b * heads * rows; row < (b + 1) * heads * rows; ++row) {
      for (std::int64_t j = owned; j < columns; ++j) bias_.Set(row * columns + j, nan);
    }
  }
}

AttentionParams AttentionCase::dense_params() {
  const auto floats = [](const TestTensor& tensor) {
    return tensor.elements() > 0 ? reinterpret_cast<float*>(tensor.buffer().data()) : nullptr;
  };
  const double default_scale = 1 / std::sqrt(static_cast<double>(shape_.head_dim));
  AttentionParams params{.shape = shape_,
                         .scale = static_cast<float>(options_.scale.value_or(default_scale)),
                         .logit_soft_cap = static_cast<float>(options_.logit_soft_cap),
                         .sequences = sequences_.data(),
                         .query = query_.buffer().data(),
                         .key = key_.buffer().data(),
                         .value = value_.buffer().data(),
                         .alibi_slopes = floats(alibi_slopes_),
                         .sink_logits = floats(sink_logits_),
                         .bias = floats(bias_),
                         .output = output_.buffer().data(),
                         .log_sum_exp = floats(log_sum_exp_),
                         .lse_head_stride_elems = problem_.ragged()               ? query_tokens_
                                                  : problem_.query_tokens.empty() ? 0
                                                                                  : problem_.query_tokens[0]};
  if (params.bias != nullptr) {
    const std::int64_t head_elems = bias_shape_[2] * bias_shape_[3];
    params.bias_row_stride_elems = bias_shape_[3];
    params.bias_head_stride_elems = bias_shape_[1] == 1 ? 0 : head_elems;
    params.bias_sequence_stride_elems = bias_shape_[0] == 1 ? 0 : bias_shape_[1] * head_elems;
  }
  return params;
}

std::vector<const TestTensor*> AttentionCase::inputs() const {
  std::vector<const TestTensor*> inputs = {&query_, &key_, &value_, &bias_, &alibi_slopes_, &sink_logits_};
  if (paged_.has_value()) inputs.insert(inputs.end(), {&paged_->key(), &paged_->value(), &paged_->block_table()});
  return inputs;
}

AttentionParams AttentionCase::params() {
  std::ranges::fill(output_.bytes(), GuardedBuffer::kPoison);
  std::ranges::fill(log_sum_exp_.bytes(), GuardedBuffer::kPoison);
  AttentionParams params = dense_params();
  if (problem_.paged()) {
    paged_.emplace(shape_, problem_, sequences_, key_, value_, page_seed_);
    paged_->PutInto(params);
  }
  inputs_before_.clear();
  for (const TestTensor* input : inputs()) inputs_before_.emplace_back(input->bytes().begin(), input->bytes().end());
  return params;
}

::testing::AssertionResult AttentionCase::RunWasClean() const {
  for (std::size_t i = 0; i < inputs_before_.size(); ++i) {
    if (!std::ranges::equal(inputs_before_[i], inputs()[i]->bytes())) {
      return ::testing::AssertionFailure() << name() << ": input " << i << " was written to";
    }
  }
  std::vector<const TestTensor*> tensors = inputs();
  tensors.insert(tensors.end(), {&output_, &log_sum_exp_});
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i]->elements() > 0 && !tensors[i]->buffer().guards_whole()) {
      return ::testing::AssertionFailure() << name() << ": guards of tensor " << i << " were written to";
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult AttentionCase::AnswerIsRight() {
  const auto* const lse = reinterpret_cast<const float*>(log_sum_exp_.buffer().data());
  return AnswerIsRight(output_.bytes(), {lse, static_cast<std::size_t>(log_sum_exp_.elements())});
}

::testing::AssertionResult AttentionCase::AnswerIsRight(std::span<const std::byte> output, std::span<const float> log_sum_exp) {
  if (output.size() != output_.bytes().size()) {
    return ::testing::AssertionFailure() << name() << ": output has " << output.size() << " bytes, not "
                                         << output_.bytes().size();
  }
  const AttentionParams params = dense_params();
  const reference::AttentionResult& want = expected();
  if (!bound_.has_value()) {
    bound_ = BoundErrors(params, want);
    allowed_errors_ = AllowedErrors(params, want);
  }

  std::vector<double> got(output_.elements());
  for (std::int64_t i = 0; i < output_.elements(); ++i) got[i] = reference::Load(output_.type(), output.data(), i);
  Subject subject{
      .name = name() + " output", .shape = {query_tokens_, shape_.query_heads, shape_.value_head_dim}, .seed = seed_};
  if (const auto result = AllWithin(got, want.output, bound_->output, subject); !result) return result;
  if (const auto result = NoWorseThanPlain(got, want.output, allowed_errors_, subject); !result) return result;

  subject.name = name() + " log_sum_exp";
  subject.shape = {};
  return AllWithin(std::vector<double>(log_sum_exp.begin(), log_sum_exp.end()), want.log_sum_exp, bound_->log_sum_exp, subject);
}

const reference::AttentionResult& AttentionCase::expected() {
  if (!expected_.has_value()) expected_ = reference::Attend(dense_params());
  return *expected_;
}

}  // namespace ridgeline::support
