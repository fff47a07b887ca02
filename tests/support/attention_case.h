// One attention problem with its tensors, and the judgement of an answer to it.
//
//   AttentionCase attention_case(problem, options, DataType::kBFloat16, seed);
//   Run(attention_case.params());
//   EXPECT_TRUE(attention_case.RunWasClean());
//   EXPECT_TRUE(attention_case.AnswerIsRight());
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "tests/reference/attention_reference.h"
#include "tests/support/attention_shapes.h"
#include "tests/support/attention_tolerance.h"
#include "tests/support/comparator.h"
#include "tests/support/paged_key_value.h"
#include "tests/support/test_tensor.h"

namespace ridgeline::support {

// The seed of a run: RIDGELINE_TEST_SEED from the environment, else the same every time.
std::uint64_t TestSeed();

// A seed of its own for each (part, index), from TestSeed().
std::uint64_t DeriveSeed(std::string_view part, std::uint64_t index = 0);

// Owns its tensors. Inputs are random normals from the seed; keys, values and bias that no sequence owns are NaN, and so are
// output and log_sum_exp until something writes them. Tests may change inputs until params() is called; the expected answer is
// to what they hold when it is first asked for.
//
// A paged problem has its keys and values as others have, for the reference and for tests to change; params() puts them in
// pages.
class AttentionCase {
 public:
  AttentionCase(AttentionProblem problem, AttentionOptions options, kernels::DataType type, std::uint64_t seed);
  AttentionCase(const AttentionCase&) = delete;
  AttentionCase& operator=(const AttentionCase&) = delete;

  const AttentionProblem& problem() const { return problem_; }
  const AttentionOptions& options() const { return options_; }
  kernels::DataType type() const { return shape_.data_type; }
  std::uint64_t seed() const { return seed_; }
  std::string name() const;

  TestTensor& query() { return query_; }  // [query tokens, Hq, D]
  TestTensor& key() { return key_; }      // [key tokens, Hkv, D]
  TestTensor& value() { return value_; }  // [key tokens, Hkv, Dv]
  TestTensor& bias() { return bias_; }    // [B or 1, Hq or 1, Sq, stored Sk], empty without one
  const std::vector<std::int64_t>& bias_shape() const { return bias_shape_; }
  TestTensor& alibi_slopes() { return alibi_slopes_; }  // [Hq], empty without ALiBi
  TestTensor& sink_logits() { return sink_logits_; }    // [Hq], empty without sinks
  std::vector<kernels::attention::Sequence>& sequences() { return sequences_; }
  TestTensor& output() { return output_; }            // [query tokens, Hq, Dv]
  TestTensor& log_sum_exp() { return log_sum_exp_; }  // [B, Hq, Sq], ragged [Hq, query tokens], empty if not wanted

  // The problem for a kernel, without workspace. Poisons output and log_sum_exp, and notes what the inputs hold.
  kernels::attention::AttentionParams params();

  // The same problem with its keys and values in dense rows, be it paged or not: what the reference reads.
  kernels::attention::AttentionParams dense_params();

  // Paged: what the last params() made of keys and values.
  const PagedKeyValue& paged() const { return *paged_; }

  // Paged: from now on params() puts the pages in another order.
  void MovePages(std::uint64_t seed) { page_seed_ = seed; }

  // After a kernel has run on params(): inputs are as they were, guards whole.
  ::testing::AssertionResult RunWasClean() const;

  // The answer, in output() and log_sum_exp() or in memory of the caller's, is within both bounds of the reference.
  ::testing::AssertionResult AnswerIsRight();
  ::testing::AssertionResult AnswerIsRight(std::span<const std::byte> output, std::span<const float> log_sum_exp);

  // Computed on the first call, from what the inputs then hold.
  const reference::AttentionResult& expected();

 private:
  void LayOutSequences();
  void FillOptions();
  void PoisonUnownedKeys();
  void ShareKeys();
  std::vector<const TestTensor*> inputs() const;

  AttentionProblem problem_;
  AttentionOptions options_;
  std::uint64_t seed_;
  kernels::attention::AttentionShape shape_;
  std::vector<kernels::attention::Sequence> sequences_;
  std::int64_t query_tokens_ = 0;  // of all sequences
  std::int64_t key_tokens_ = 0;    // stored
  TestTensor query_, key_, value_, bias_, alibi_slopes_, sink_logits_, output_, log_sum_exp_;
  std::vector<std::int64_t> bias_shape_;
  std::uint64_t page_seed_;
  std::optional<PagedKeyValue> paged_;
  std::vector<std::vector<std::byte>> inputs_before_;
  std::optional<reference::AttentionResult> expected_;
  std::optional<AttentionBound> bound_;
  ErrorSummary allowed_errors_;  // set with bound_
};

}  // namespace ridgeline::support
