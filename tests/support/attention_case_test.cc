// The suite's judgement judged: a plain implementation passes on every type and option, and planted faults don't.
#include "tests/support/attention_case.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "tests/reference/plain_attention.h"
#include "tests/support/attention_shapes.h"

namespace ridgeline::support {
namespace {

using kernels::DataType;
using kernels::attention::AttentionParams;
using ::testing::HasSubstr;

void AnswerPlainly(AttentionCase& attention_case, const AttentionParams& params) {
  const reference::PlainAttentionResult plain = reference::AttendPlainly(params);
  std::ranges::copy(plain.output, attention_case.output().bytes().begin());
  std::memcpy(attention_case.log_sum_exp().bytes().data(), plain.log_sum_exp.data(),
              attention_case.log_sum_exp().bytes().size());
}

TEST(AttentionCaseTest, PlainAttentionIsRightForEveryTypeAndOption) {
  for (const DataType type : kAttentionTypes) {
    for (const AttentionProblem& problem : SmallAttentionProblems()) {
      for (const OptionVariant& variant : OptionVariants()) {
        if (!Allowed(problem, With(variant))) continue;
        AttentionCase attention_case(problem, With(variant), type, 1);
        AnswerPlainly(attention_case, attention_case.params());
        EXPECT_TRUE(attention_case.RunWasClean());
        EXPECT_TRUE(attention_case.AnswerIsRight());
      }
    }
  }
}

// An answer to a slightly different question must be refused, in every type.
class WrongAnswerTest : public ::testing::TestWithParam<DataType> {
 protected:
  WrongAnswerTest() : case_(DenseProblem(2, 9, 21, 4, 2, 32, 32), AttentionOptions(), GetParam(), 5) {}

  AttentionCase case_;
};

TEST_P(WrongAnswerTest, WindowOneOff) {
  AttentionParams params = case_.params();
  params.shape.window_left = 11;  // hides key 0 from the last query of each head
  AnswerPlainly(case_, params);
  EXPECT_FALSE(case_.AnswerIsRight());
}

TEST_P(WrongAnswerTest, HeadsGroupedWrongly) {
  AttentionParams params = case_.params();
  params.shape.kv_heads = 1;
  AnswerPlainly(case_, params);
  EXPECT_FALSE(case_.AnswerIsRight());
}

TEST_P(WrongAnswerTest, RowsSwapped) {
  AnswerPlainly(case_, case_.params());
  const auto bytes = case_.output().bytes();
  const std::size_t row_bytes = bytes.size() / (2 * 9 * 4);
  std::swap_ranges(bytes.begin(), bytes.begin() + row_bytes, bytes.begin() + row_bytes);
  EXPECT_FALSE(case_.AnswerIsRight());
}

TEST_P(WrongAnswerTest, RowNotWritten) {
  AnswerPlainly(case_, case_.params());
  std::ranges::fill(case_.output().bytes().last(32), GuardedBuffer::kPoison);
  EXPECT_THAT(case_.AnswerIsRight().message(), HasSubstr("worst at [17, 3, "));
}

TEST_P(WrongAnswerTest, ScaleSlightlyOff) {
  AttentionParams params = case_.params();
  params.scale *= GetParam() == DataType::kFloat32 ? 1.0001f : 1.02f;
  AnswerPlainly(case_, params);
  EXPECT_FALSE(case_.AnswerIsRight());
}

TEST_P(WrongAnswerTest, LogSumExpInTheWrongSlots) {
  AnswerPlainly(case_, case_.params());
  std::swap_ranges(case_.log_sum_exp().bytes().begin(), case_.log_sum_exp().bytes().begin() + 4 * 9,
                   case_.log_sum_exp().bytes().begin() + 4 * 9);
  EXPECT_THAT(case_.AnswerIsRight().message(), HasSubstr("log_sum_exp"));
}

TEST_P(WrongAnswerTest, ErrorsOfAPlainImplementationMultiplied) {
  // Over many keys this stays within the rigorous bound of every element, and only the second bound sees it. float32's
  // unavoidable error leaves more room.
  AttentionOptions options;
  options.output_data_type = DataType::kFloat32;
  AttentionCase attention_case(DenseProblem(1, 9, 300, 2, 2, 32, 32), options, GetParam(), 5);
  AnswerPlainly(attention_case, attention_case.params());
  EXPECT_TRUE(attention_case.AnswerIsRight());
  const double factor = GetParam() == DataType::kFloat32 ? 10 : 2.5;
  for (std::int64_t i = 0; i < attention_case.output().elements(); ++i) {
    const double want = attention_case.expected().output[i];
    attention_case.output().Set(i, want + factor * (attention_case.output().Get(i) - want));
  }
  EXPECT_THAT(attention_case.AnswerIsRight().message(), HasSubstr("more than twice a plain implementation's"));
}

INSTANTIATE_TEST_SUITE_P(Types, WrongAnswerTest, ::testing::ValuesIn(kAttentionTypes),
                         [](const auto& type) { return std::string(kernels::Name(type.param)); });

TEST(AttentionCaseTest, NoticesAnInputThatChanged) {
  AttentionCase attention_case(DenseProblem(1, 2, 3, 1, 1, 8, 8), AttentionOptions(), DataType::kFloat16, 1);
  attention_case.params();
  EXPECT_TRUE(attention_case.RunWasClean());
  attention_case.key().Set(23, 0);
  EXPECT_THAT(attention_case.RunWasClean().message(), HasSubstr("input 1 was written to"));
}

TEST(AttentionCaseTest, PoisonsWhatNoSequenceOwns) {
  AttentionOptions options;
  options.bias = Bias::kFull;
  AttentionCase attention_case(PaddedProblem(1, 3, {3, 1, 0}, 1, 1, 8), options, DataType::kBFloat16, 1);
  attention_case.params();
  for (std::int64_t token = 0; token < 9; ++token) {
    const bool owned = token <= 3;  // three of the first row, one of the second
    EXPECT_EQ(std::isnan(attention_case.key().Get(token * 8 + 7)), !owned) << token;
    EXPECT_EQ(std::isnan(attention_case.value().Get(token * 8)), !owned) << token;
    EXPECT_EQ(std::isnan(attention_case.bias().Get(token)), !owned) << token;
  }
  EXPECT_TRUE(std::isnan(attention_case.output().Get(0)));
  EXPECT_TRUE(std::isnan(attention_case.log_sum_exp().Get(0)));
}

TEST(AttentionCaseTest, SameSeedSameTensors) {
  const AttentionProblem problem = DenseProblem(1, 2, 3, 1, 1, 8, 8);
  AttentionCase first(problem, AttentionOptions(), DataType::kFloat32, 3);
  AttentionCase second(problem, AttentionOptions(), DataType::kFloat32, 3);
  AttentionCase other(problem, AttentionOptions(), DataType::kFloat32, 4);
  EXPECT_TRUE(std::ranges::equal(first.key().bytes(), second.key().bytes()));
  EXPECT_FALSE(std::ranges::equal(first.key().bytes(), other.key().bytes()));
  EXPECT_FALSE(std::ranges::equal(first.key().bytes(), first.value().bytes()));
}

TEST(AttentionShapesTest, NamesAreUnique) {
  std::set<std::string> names;
  for (const AttentionProblem& problem : AttentionProblems()) {
    EXPECT_TRUE(names.insert(problem.name).second) << problem.name;
  }
  names.clear();
  for (const AttentionOptions& options : OptionPairs()) EXPECT_TRUE(names.insert(options.name).second) << options.name;
}

TEST(AttentionShapesTest, ProblemsAreWellFormed) {
  for (const AttentionProblem& problem : AttentionProblems()) {
    SCOPED_TRACE(problem.name);
    EXPECT_EQ(problem.query_tokens.size(), problem.key_tokens.size());
    EXPECT_EQ(problem.query_heads % problem.kv_heads, 0);
    EXPECT_EQ(problem.head_dim % 8, 0);
    EXPECT_EQ(problem.value_head_dim % 8, 0);
    if (problem.ragged()) continue;
    for (std::size_t s = 0; s < problem.query_tokens.size(); ++s) {
      EXPECT_EQ(problem.query_tokens[s], problem.query_tokens[0]);
      EXPECT_LE(problem.key_tokens[s], *problem.dense_key_tokens);
    }
  }
}

}  // namespace
}  // namespace ridgeline::support
