// Logits of any size that float32 holds, and arrays of any size that an address holds.
#include <sys/mman.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_shapes.h"
#include "tests/support/comparator.h"
#include "tests/support/thread_executor.h"
#include "tests/unit/kernels/attention_runner.h"

namespace ridgeline::kernels::attention {
namespace {

using support::AttentionCase;
using support::AttentionOptions;
using support::DenseProblem;
using support::DeriveSeed;

// One head; every product q·k is q_0·k_0 + q_1·k_1, exact in float32, and scale is 1.
class AttentionExtremesTest : public ::testing::TestWithParam<std::tuple<Algorithm, DataType>> {
 protected:
  static constexpr std::int64_t kHeadDim = 8;

  Algorithm algorithm() const { return std::get<0>(GetParam()); }
  DataType type() const { return std::get<1>(GetParam()); }

  static AttentionOptions Unscaled() {
    AttentionOptions options;
    options.scale = 1;
    return options;
  }

  static void SetRow(support::TestTensor& tensor, std::int64_t token, double first, double second) {
    for (std::int64_t d = 0; d < kHeadDim; ++d) tensor.Set(token * kHeadDim + d, d == 0 ? first : d == 1 ? second : 0);
  }

  // Errors as for small logits: products that float32 holds exactly leave nothing to round.
  void ExpectRightAsForSmallLogits(AttentionCase& attention_case) {
    ASSERT_TRUE(RunKernel(algorithm(), attention_case.params(), executor_));
    const std::vector<double> got = AnswerOf(attention_case);
    std::vector<double> want = attention_case.expected().output;
    const std::vector<double>& lse = attention_case.expected().log_sum_exp;
    const double output_bound = type() == DataType::kFloat32 ? 2e-5 : type() == DataType::kFloat16 ? 0x1p-9 : 0x1p-6;
    std::vector<double> bound(want.size(), output_bound);
    for (const double element : lse) {
      want.push_back(element);
      bound.push_back(1e-5 + std::abs(element) * 0x1p-23);
    }
    EXPECT_TRUE(
        support::AllWithin(got, want, bound, {.name = attention_case.name(), .shape = {}, .seed = attention_case.seed()}));
  }

  support::ThreadExecutor executor_{2};
};

INSTANTIATE_TEST_SUITE_P(All, AttentionExtremesTest,
                         ::testing::Combine(::testing::ValuesIn(kAlgorithms), ::testing::ValuesIn(support::kAttentionTypes)),
                         [](const auto& param) {
                           return std::string(Name(std::get<0>(param.param))) + "_" + Name(std::get<1>(param.param));
                         });

// 1024 * 976 is 999424: exact in every type, and so are its neighbours. A large common part cancels in the softmax and must not
// cost the small differences, on which alone the weights depend.
TEST_P(AttentionExtremesTest, MillionsCancel) {
  for (const double sign : {1.0, -1.0}) {
    AttentionCase attention_case(DenseProblem(1, 5, 200, 1, 1, kHeadDim, kHeadDim), Unscaled(), type(), DeriveSeed("million"));
    for (std::int64_t i = 0; i < 5; ++i) SetRow(attention_case.query(), i, 1024, 1);
    for (std::int64_t j = 0; j < 200; ++j) {
      SetRow(attention_case.key(), j, sign * 976, static_cast<double>(j * 7 % 5));
    }
    ExpectRightAsForSmallLogits(attention_case);
  }
}

// A row in which one key stands a million above or below all others.
TEST_P(AttentionExtremesTest, MillionsApart) {
  for (const double spike : {976.0, -976.0}) {
    AttentionCase attention_case(DenseProblem(1, 5, 200, 1, 1, kHeadDim, kHeadDim), Unscaled(), type(), DeriveSeed("spike"));
    for (std::int64_t i = 0; i < 5; ++i) SetRow(attention_case.query(), i, 1024, 1);
    for (std::int64_t j = 0; j < 200; ++j) SetRow(attention_case.key(), j, j == 131 ? spike : 0, static_cast<double>(j % 3));
    ExpectRightAsForSmallLogits(attention_case);
  }
}

// Just inside float32's range: their differences are outside. Every finite stand-in for -inf is larger than these.
TEST_P(AttentionExtremesTest, LogitsAtTheEndsOfFloat32) {
  const double query = type() == DataType::kFloat16 ? 0x1p15 : 0x1p64;  // float16 itself ends the range earlier
  const double key = type() == DataType::kFloat16 ? 0x1.fp15 : 0x1.fp63;
  for (const bool all_negative : {false, true}) {
    AttentionCase attention_case(DenseProblem(1, 5, 200, 1, 1, kHeadDim, kHeadDim), Unscaled(), type(), DeriveSeed("ends"));
    for (std::int64_t i = 0; i < 5; ++i) SetRow(attention_case.query(), i, query, 0);
    for (std::int64_t j = 0; j < 200; ++j) {
      SetRow(attention_case.key(), j, all_negative || j % 3 != 0 ? -key : key, 0);
    }
    ExpectRightAsForSmallLogits(attention_case);
  }
}

// Without a cap these products would overflow to infinity; with one they are the cap.
TEST_P(AttentionExtremesTest, SoftCapSaturates) {
  AttentionOptions options = Unscaled();
  options.logit_soft_cap = 3;
  const double huge = type() == DataType::kFloat16 ? 60000 : 0x1p100;
  AttentionCase attention_case(DenseProblem(1, 5, 200, 1, 1, kHeadDim, kHeadDim), options, type(), DeriveSeed("cap"));
  for (std::int64_t i = 0; i < 5; ++i) SetRow(attention_case.query(), i, huge, 0);
  for (std::int64_t j = 0; j < 200; ++j) SetRow(attention_case.key(), j, (j % 3 - 1) * huge, 0);
  ExpectRightAsForSmallLogits(attention_case);
}

TEST_P(AttentionExtremesTest, SinkFarAboveAndFarBelowTheLogits) {
  for (const double sink : {1e6, -1e6, 3e38, -3e38}) {
    AttentionOptions options = Unscaled();
    options.sink = support::Sink::kFinite;
    AttentionCase attention_case(DenseProblem(1, 5, 70, 1, 1, kHeadDim, kHeadDim), options, type(), DeriveSeed("sink"));
    attention_case.sink_logits().Set(0, sink);
    ExpectRightAsForSmallLogits(attention_case);
  }
}

TEST_P(AttentionExtremesTest, AlibiFarAway) {
  AttentionOptions options = Unscaled();
  options.alibi = true;
  AttentionCase attention_case(DenseProblem(1, 3, 400, 1, 1, kHeadDim, kHeadDim), options, type(), DeriveSeed("alibi"));
  for (const double slope : {1e4, -1e4, 0.0}) {
    AttentionCase with_slope(attention_case.problem(), options, type(), attention_case.seed());
    with_slope.alibi_slopes().Set(0, slope);
    EXPECT_TRUE(IsRight(algorithm(), with_slope, executor_)) << slope;
  }
}

// Address space without memory behind it until a page is touched.
class SparseArray {
 public:
  explicit SparseArray(std::int64_t size_bytes) : size_bytes_(size_bytes) {
    data_ = mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~SparseArray() {
    if (mapped()) munmap(data_, size_bytes_);
  }
  SparseArray(const SparseArray&) = delete;
  SparseArray& operator=(const SparseArray&) = delete;

  bool mapped() const { return data_ != MAP_FAILED; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::int64_t size_bytes_;
  void* data_;
};

// The second of two sequences lies past element 2^32 of every array: the same answer as side by side, byte for byte.
TEST_P(AttentionExtremesTest, OffsetsPastFourBillionElements) {
  constexpr std::int64_t kTokens = 70, kHeads = 4, kDim = 64, kTokenElems = kHeads * kDim;
  constexpr std::int64_t kFarToken = (std::int64_t{1} << 32) / kTokenElems + 5;
  constexpr std::int64_t kFarRow = (std::int64_t{1} << 32) + 3;  // in log_sum_exp
  AttentionOptions options;
  options.bias = support::Bias::kFull;
  AttentionCase near(DenseProblem(2, kTokens, kTokens, kHeads, kHeads, kDim, kDim), options, type(), DeriveSeed("far"));
  ASSERT_TRUE(IsRight(algorithm(), near, executor_));
  const std::vector<std::byte> want_output(near.output().bytes().begin(), near.output().bytes().end());
  const std::vector<std::byte> want_lse(near.log_sum_exp().bytes().begin(), near.log_sum_exp().bytes().end());

  const std::int64_t token_bytes = kTokenElems * ElementBytes(type());
  const std::int64_t bias_bytes = kHeads * kTokens * kTokens * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t lse_bytes = kHeads * kTokens * static_cast<std::int64_t>(sizeof(float));
  constexpr std::int64_t kFarBias = kFarRow;
  const SparseArray query((kFarToken + kTokens) * token_bytes), key((kFarToken + kTokens) * token_bytes);
  const SparseArray value((kFarToken + kTokens) * token_bytes), output((kFarToken + kTokens) * token_bytes);
  const SparseArray lse(kFarRow * static_cast<std::int64_t>(sizeof(float)) + lse_bytes);
  const SparseArray bias(kFarBias * static_cast<std::int64_t>(sizeof(float)) + bias_bytes);
  for (const SparseArray* array : {&query, &key, &value, &output, &lse, &bias}) {
    if (!array->mapped()) GTEST_SKIP() << "this system hands out no address space beyond its memory";
  }
  // Copies one sequence's part of a tensor of `near`.
  const auto spread = [](const support::TestTensor& from, std::int64_t part_bytes, std::int64_t far_bytes,
                         const SparseArray& to) {
    std::memcpy(to.data(), from.bytes().data(), part_bytes);
    std::memcpy(to.data() + far_bytes, from.bytes().data() + part_bytes, part_bytes);
  };
  spread(near.query(), kTokens * token_bytes, kFarToken * token_bytes, query);
  spread(near.key(), kTokens * token_bytes, kFarToken * token_bytes, key);
  spread(near.value(), kTokens * token_bytes, kFarToken * token_bytes, value);
  spread(near.bias(), bias_bytes, kFarBias * static_cast<std::int64_t>(sizeof(float)), bias);

  AttentionParams params = near.params();
  std::vector<Sequence> sequences = near.sequences();
  sequences[1].query_begin = sequences[1].key_begin = kFarToken;
  sequences[1].lse_begin = kFarRow;
  params.sequences = sequences.data();
  params.query = query.data();
  params.key = key.data();
  params.value = value.data();
  params.output = output.data();
  params.log_sum_exp = reinterpret_cast<float*>(lse.data());
  params.bias = reinterpret_cast<const float*>(bias.data());
  params.bias_sequence_stride_elems = kFarBias;
  ASSERT_TRUE(RunKernel(algorithm(), params, executor_));

  const std::int64_t part = kTokens * token_bytes;
  EXPECT_EQ(std::memcmp(output.data(), want_output.data(), part), 0);
  EXPECT_EQ(std::memcmp(output.data() + kFarToken * token_bytes, want_output.data() + part, part), 0);
  EXPECT_EQ(std::memcmp(lse.data(), want_lse.data(), lse_bytes), 0);
  EXPECT_EQ(std::memcmp(lse.data() + kFarRow * sizeof(float), want_lse.data() + lse_bytes, lse_bytes), 0);
}

}  // namespace
}  // namespace ridgeline::kernels::attention
