#include "server/engine/validate_attend.h"

#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "tests/support/attention_case.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/requests.h"

namespace ridgeline::engine {
namespace {

using kernels::DataType;
using kernels::attention::kUnlimitedWindow;
using support::StatusIs;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct BadRequest {
  std::string name;
  std::function<void(AttendRequest&)> spoil;
  std::string field;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

// Inline bytes must outlive their request: they live as long as the program.
Tensor Floats(std::vector<std::int64_t> shape, std::initializer_list<double> values) {
  static auto& kept = *new std::deque<std::vector<float>>;
  kept.emplace_back(values.begin(), values.end());
  return InlineTensor(std::move(shape), DataType::kFloat32, std::as_bytes(std::span(kept.back())));
}

std::vector<BadRequest> BadRequests() {
  constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  return {
      {"no query", [](AttendRequest& r) { r.query.reset(); }, "query"},
      {"no key_value", [](AttendRequest& r) { r.dense.reset(); }, "dense"},
      {"no key", [](AttendRequest& r) { r.dense->key.reset(); }, "dense.key"},
      {"no value", [](AttendRequest& r) { r.dense->value.reset(); }, "dense.value"},
      {"no storage", [](AttendRequest& r) { r.query->storage = std::monostate(); }, "query"},
      {"no type", [](AttendRequest& r) { r.query->data_type.reset(); }, "query.data_type"},
      {"integer query", [](AttendRequest& r) { r.query->data_type = DataType::kInt32; }, "query.data_type"},
      {"float8 query", [](AttendRequest& r) { r.query->data_type = DataType::kFloat8E4M3; }, "query.data_type", kUnimplemented},
      {"other key type", [](AttendRequest& r) { r.dense->key->data_type = DataType::kFloat16; }, "dense.key.data_type"},
      {"other value type", [](AttendRequest& r) { r.dense->value->data_type = DataType::kFloat16; }, "dense.value.data_type"},
      {"rank 2",
       [](AttendRequest& r) {
         r.query->shape = {3, 8};
       },
       "query.shape"},
      {"rank 5",
       [](AttendRequest& r) {
         r.query->shape = {1, 1, 3, 4, 8};
       },
       "query.shape"},
      {"negative extent", [](AttendRequest& r) { r.query->shape[1] = -1; }, "query.shape"},
      {"overflowing shape",
       [](AttendRequest& r) {
         r.query->shape = {1 << 20, kHuge / 8, 4, 8};
       },
       "query.shape"},
      {"zero heads", [](AttendRequest& r) { r.query->shape[2] = 0; }, "query.shape"},
      {"zero head_dim", [](AttendRequest& r) { r.query->shape[3] = 0; }, "query.shape"},
      {"head_dim 12", [](AttendRequest& r) { r.query->shape[3] = 12; }, "query.shape"},
      {"head_dim 264", [](AttendRequest& r) { r.query->shape[3] = 264; }, "query.shape"},
      {"other head_dim", [](AttendRequest& r) { r.dense->key->shape[3] = 16; }, "dense.key.shape"},
      {"heads not divisible", [](AttendRequest& r) { r.dense->key->shape[2] = 3; }, "dense.key.shape"},
      {"value of other tokens", [](AttendRequest& r) { r.dense->value->shape[1] = 6; }, "dense.value.shape"},
      {"value of other heads", [](AttendRequest& r) { r.dense->value->shape[2] = 4; }, "dense.value.shape"},
      {"value_head_dim 4", [](AttendRequest& r) { r.dense->value->shape[3] = 4; }, "dense.value.shape"},
      {"other batch", [](AttendRequest& r) { r.dense->key->shape[0] = r.dense->value->shape[0] = 3; }, "dense.key.shape"},
      {"bytes missing",
       [](AttendRequest& r) {
         r.query = Floats({2, 3, 4, 8}, {1, 2, 3});
       },
       "query.inline_data"},
      {"infinite mean", [](AttendRequest& r) { r.query->storage = RandomFill{.mean = kInfinity}; }, "query.random.mean"},
      {"negative deviation", [](AttendRequest& r) { r.query->storage = RandomFill{.standard_deviation = -1}; },
       "query.random.standard_deviation"},
      {"shared memory", [](AttendRequest& r) { r.query->storage = SharedMemorySlice{}; }, "query.shared_memory",
       kUnimplemented},
      {"lengths for a dense query",
       [](AttendRequest& r) {
         r.query_lengths = {3, 3};
       },
       "query_lengths"},
      {"ragged without lengths",
       [](AttendRequest& r) {
         r.query->shape = {6, 4, 8};
       },
       "query_lengths"},
      {"ragged lengths of another sum",
       [](AttendRequest& r) {
         r.query->shape = {6, 4, 8};
         r.query_lengths = {3, 4};
       },
       "query_lengths"},
      {"a negative ragged length",
       [](AttendRequest& r) {
         r.query->shape = {6, 4, 8};
         r.query_lengths = {7, -1};
       },
       "query_lengths"},
      {"ragged lengths that overflow",
       [](AttendRequest& r) {
         r.query->shape = {6, 4, 8};
         r.query_lengths = {kHuge, kHuge, 8};
       },
       "query_lengths"},
      {"a length beyond the keys",
       [](AttendRequest& r) {
         r.dense->lengths = {5, 6};
       },
       "dense.lengths"},
      {"a negative length",
       [](AttendRequest& r) {
         r.dense->lengths = {5, -1};
       },
       "dense.lengths"},
      {"too few lengths", [](AttendRequest& r) { r.dense->lengths = {5}; }, "dense.lengths"},
      {"NaN scale", [](AttendRequest& r) { r.options.scale = kNan; }, "options.scale"},
      {"infinite scale", [](AttendRequest& r) { r.options.scale = kInfinity; }, "options.scale"},
      {"scale beyond float32", [](AttendRequest& r) { r.options.scale = 1e300; }, "options.scale"},
      {"negative window_left", [](AttendRequest& r) { r.options.window_left = -1; }, "options.window_left"},
      {"negative window_right", [](AttendRequest& r) { r.options.window_right = -7; }, "options.window_right"},
      {"NaN soft cap", [](AttendRequest& r) { r.options.logit_soft_cap = kNan; }, "options.logit_soft_cap"},
      {"negative soft cap", [](AttendRequest& r) { r.options.logit_soft_cap = -1; }, "options.logit_soft_cap"},
      {"soft cap that float32 rounds to 0", [](AttendRequest& r) { r.options.logit_soft_cap = 1e-60; },
       "options.logit_soft_cap"},
      {"ALiBi of another shape", [](AttendRequest& r) { r.options.alibi_slopes = RandomTensor({2}, 1); },
       "options.alibi_slopes.shape"},
      {"ALiBi of another type", [](AttendRequest& r) { r.options.alibi_slopes = RandomTensor({4}, 1, DataType::kFloat16); },
       "options.alibi_slopes.data_type"},
      {"NaN slope",
       [](AttendRequest& r) {
         r.options.alibi_slopes = Floats({4}, {0, 1, kNan, 2});
       },
       "options.alibi_slopes.inline_data"},
      {"infinite sink",
       [](AttendRequest& r) {
         r.options.sink_logits = Floats({4}, {0, 1, kInfinity, 2});
       },
       "options.sink_logits.inline_data"},
      {"bias of another shape",
       [](AttendRequest& r) {
         r.options.bias = RandomTensor({2, 4, 3, 6}, 1);
       },
       "options.bias.shape"},
      {"bias for a ragged query",
       [](AttendRequest& r) {
         r.query->shape = {6, 4, 8};
         r.query_lengths = {3, 3};
         r.options.bias = RandomTensor({2, 4, 3, 5}, 1);
       },
       "options.bias"},
      {"integer output", [](AttendRequest& r) { r.output.data_type = DataType::kInt64; }, "output.data_type"},
      {"output to shared memory", [](AttendRequest& r) { r.output.shared_memory.emplace(); }, "output.shared_memory",
       kUnimplemented},
  };
}

TEST(ValidateAttendTest, NamesTheFieldThatIsWrong) {
  for (const BadRequest& bad : BadRequests()) {
    AttendRequest request = SmallRequest();
    bad.spoil(request);
    const absl::StatusOr<AttendProblem> problem = ValidateAttend(std::move(request));
    ASSERT_THAT(problem, StatusIs(bad.code)) << bad.name;
    EXPECT_EQ(base::ErrorField(problem.status()), bad.field) << bad.name << ": " << problem.status();
    EXPECT_FALSE(problem.status().message().empty()) << bad.name;
  }
}

TEST(ValidateAttendTest, TakesDefaults) {
  ASSERT_OK_AND_ASSIGN(const AttendProblem problem, ValidateAttend(SmallRequest()));
  EXPECT_FLOAT_EQ(problem.scale, 1 / std::sqrt(8.0f));
  EXPECT_EQ(problem.shape.window_left, kUnlimitedWindow);
  EXPECT_EQ(problem.shape.window_right, kUnlimitedWindow);
  EXPECT_EQ(problem.shape.output_data_type, DataType::kFloat32);
  EXPECT_FALSE(problem.algorithm.has_value());
  ASSERT_EQ(problem.sequences.size(), 2u);
  EXPECT_EQ(problem.sequences[1].query_begin, 3);
  EXPECT_EQ(problem.sequences[1].key_begin, 5);
  EXPECT_EQ(problem.sequences[1].lse_begin, 12);
  EXPECT_EQ(problem.output_bytes, 2 * 3 * 4 * 8 * 4);
}

TEST(ValidateAttendTest, ZeroIsAValueNotUnset) {
  AttendRequest request = SmallRequest();
  request.options.scale = 0;
  request.options.window_left = 0;
  request.options.window_right = 0;
  ASSERT_OK_AND_ASSIGN(const AttendProblem problem, ValidateAttend(std::move(request)));
  EXPECT_EQ(problem.scale, 0);
  EXPECT_EQ(problem.shape.window_left, 0);
  EXPECT_EQ(problem.shape.window_right, 0);
}

TEST(ValidateAttendTest, AHugeWindowIsNoLimit) {
  AttendRequest request = SmallRequest();
  request.options.window_left = std::numeric_limits<std::int64_t>::max();
  ASSERT_OK_AND_ASSIGN(const AttendProblem problem, ValidateAttend(std::move(request)));
  EXPECT_EQ(problem.shape.window_left, kUnlimitedWindow);
}

TEST(ValidateAttendTest, EmptyBatchesAndSequencesAreLegal) {
  for (const auto& [batch, query_tokens, key_tokens] :
       std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{{0, 3, 5}, {2, 0, 5}, {2, 3, 0}, {0, 0, 0}}) {
    AttendRequest request = SmallRequest();
    request.query->shape = {batch, query_tokens, 4, 8};
    request.dense->key->shape = {batch, key_tokens, 2, 8};
    request.dense->value->shape = {batch, key_tokens, 2, 16};
    ASSERT_OK_AND_ASSIGN(const AttendProblem problem, ValidateAttend(std::move(request)));
    EXPECT_EQ(problem.output_bytes, batch * query_tokens * 4 * 16 * 4);
  }
}

TEST(ValidateAttendTest, RaggedQueriesGoWithPaddedKeys) {
  AttendRequest request = SmallRequest();
  request.query->shape = {6, 4, 8};
  request.query_lengths = {6, 0};
  request.dense->lengths = {2, 5};
  ASSERT_OK_AND_ASSIGN(const AttendProblem problem, ValidateAttend(std::move(request)));
  EXPECT_EQ(problem.sequences[0].query_tokens, 6);
  EXPECT_EQ(problem.sequences[0].key_tokens, 2);
  EXPECT_EQ(problem.sequences[1].key_begin, 5);
  EXPECT_EQ(problem.lse_head_stride_elems, 6);
}

// Requests drawn from likely and hostile numbers: none crashes, and what is accepted fits together.
TEST(ValidateAttendTest, AcceptsOnlyWhatFits) {
  const std::uint64_t seed = support::DeriveSeed("AcceptsOnlyWhatFits");
  std::mt19937_64 generator(seed);
  const std::vector<std::int64_t> numbers = {-1,
                                             0,
                                             1,
                                             2,
                                             3,
                                             4,
                                             5,
                                             8,
                                             16,
                                             256,
                                             1 << 20,
                                             std::int64_t{1} << 40,
                                             std::numeric_limits<std::int64_t>::max(),
                                             std::numeric_limits<std::int64_t>::min()};
  const auto draw = [&](std::int64_t usual) { return generator() % 8 == 0 ? numbers[generator() % numbers.size()] : usual; };
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    AttendRequest request = SmallRequest();
    request.query->shape = {draw(2), draw(3), draw(4), draw(8)};
    request.dense->key->shape = {draw(2), draw(5), draw(2), draw(8)};
    request.dense->value->shape = {draw(2), draw(5), draw(2), draw(8)};
    if (generator() % 4 == 0) request.dense->lengths = {draw(5), draw(5)};
    if (generator() % 8 == 0) request.query_lengths = {draw(3), draw(3)};
    const absl::StatusOr<AttendProblem> problem = ValidateAttend(std::move(request));
    if (!problem.ok()) {
      ASSERT_TRUE(base::ErrorField(problem.status()).has_value()) << problem.status();
      continue;
    }
    ++accepted;
    std::int64_t rows = 0;
    for (const auto& sequence : problem->sequences) {
      rows += sequence.query_tokens;
      ASSERT_LE((sequence.key_begin + sequence.key_tokens) * problem->shape.kv_heads * problem->shape.head_dim,
                problem->key.elements);
    }
    ASSERT_EQ(rows * problem->shape.query_heads * problem->shape.head_dim, problem->query.elements) << "seed " << seed;
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace ridgeline::engine
