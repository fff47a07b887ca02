// Rotary embeddings, by themselves and into the pages of a KV cache.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/common/data_type.h"
#include "kernels/fused/fused.h"
#include "kernels/fused/op_info.h"
#include "tests/support/attention_case.h"
#include "tests/support/fused_case.h"
#include "tests/support/fused_shapes.h"
#include "tests/unit/kernels/fused_runner.h"

namespace ridgeline::kernels::fused {
namespace {

using kv_cache::TokenSpan;
using support::FusedCase;

class FusedRopeTest : public ::testing::TestWithParam<DataType> {};

INSTANTIATE_TEST_SUITE_P(Types, FusedRopeTest, ::testing::ValuesIn(support::kFusedTypes),
                         [](const auto& type) { return std::string(Name(type.param)); });

TEST_P(FusedRopeTest, TurnsHeads) {
  for (FusedShape shape : support::RopeShapes(GetParam())) {
    for (const bool has_positions : {false, true}) {
      shape.has_positions = has_positions;
      FusedCase fused_case(shape, support::DeriveSeed("rope"));
      for (const Mode mode : support::kFusedModes) {
        for (const Placement placement : {Placement::kWords, Placement::kAnywhere}) {
          EXPECT_TRUE(IsRight(fused_case, mode, placement)) << support::Describe(shape);
        }
      }
    }
  }
}

// float32 alone would leave no digit of the angle.
TEST_P(FusedRopeTest, FarPositions) {
  FusedShape shape = support::RopeShapes(GetParam())[2];
  shape.has_positions = true;
  for (const std::int64_t position : {std::int64_t{131071}, std::int64_t{10'000'019}, (std::int64_t{1} << 31) + 5}) {
    FusedCase fused_case(shape, support::DeriveSeed("far"));
    fused_case.positions().assign(shape.num_rows, position);
    for (const Mode mode : support::kFusedModes) EXPECT_TRUE(IsRight(fused_case, mode)) << position;
  }
}

TEST_P(FusedRopeTest, PositionZeroTurnsNothing) {
  FusedShape shape = support::RopeShapes(GetParam())[6];
  shape.has_positions = true;
  FusedCase fused_case(shape, support::DeriveSeed("zero"));
  fused_case.positions().assign(shape.num_rows, 0);
  ASSERT_TRUE(RunFused(fused_case.params(), Mode::kFused));
  const std::vector<double> output = fused_case.output();
  for (std::size_t i = 0; i < output.size(); ++i) ASSERT_EQ(output[i], fused_case.input().Get(static_cast<std::int64_t>(i)));
}

// Spans that begin within pages, are empty, and leave rows between them that belong to no token.
TEST_P(FusedRopeTest, AppendsTurnedKeys) {
  for (const FusedShape& rope : support::RopeShapes(GetParam())) {
    if (rope.num_rows == 0) continue;
    for (const bool has_positions : {false, true}) {
      for (const bool has_queries : {true, false}) {
        FusedShape shape = rope;
        shape.op = Op::kRopeAppend;
        shape.num_rows = 23;
        shape.has_positions = has_positions;
        shape.has_input = has_queries;
        for (const std::int64_t page_tokens : {1, 7, 16}) {
          FusedCase fused_case(shape, support::DeriveSeed("append", page_tokens));
          fused_case.Append(page_tokens, {{.row_begin = 1, .num_tokens = 9, .table_begin = 0, .token_begin = 5},
                                          {.row_begin = 10, .num_tokens = 0, .table_begin = 0, .token_begin = 3},
                                          {.row_begin = 12, .num_tokens = 10, .table_begin = 0, .token_begin = 0}});
          for (const Mode mode : support::kFusedModes) {
            EXPECT_TRUE(IsRight(fused_case, mode)) << support::Describe(shape) << ", pages of " << page_tokens;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ridgeline::kernels::fused
