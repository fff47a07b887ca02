// What must hold of fused operations whatever the reference says, and inputs at the ends of the number range.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/common/data_type.h"
#include "kernels/fused/fused.h"
#include "kernels/fused/op_info.h"
#include "tests/reference/fused_reference.h"
#include "tests/support/attention_case.h"
#include "tests/support/fused_case.h"
#include "tests/support/fused_shapes.h"
#include "tests/unit/kernels/fused_runner.h"

namespace ridgeline::kernels::fused {
namespace {

using support::FusedCase;
using support::RowsByColumns;
using support::ShapeOf;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// A part of a warp, a warp, a block, a cluster.
constexpr std::int64_t kColumns[] = {5, 64, 1000, 9000, 70000};

double Largest(DataType type) {
  return type == DataType::kFloat16 ? 65504 : type == DataType::kBFloat16 ? 0x1.fep127 : 0x1.fffffep127;
}

class FusedPropertiesTest : public ::testing::TestWithParam<DataType> {
 protected:
  static std::uint64_t Seed(std::int64_t index) { return support::DeriveSeed("properties", index); }
};

INSTANTIATE_TEST_SUITE_P(Types, FusedPropertiesTest, ::testing::ValuesIn(support::kFusedTypes),
                         [](const auto& type) { return std::string(Name(type.param)); });

TEST_P(FusedPropertiesTest, SoftmaxSumsToOne) {
  const double roundoff = GetParam() == DataType::kFloat32 ? 0x1p-20 : GetParam() == DataType::kFloat16 ? 0x1p-10 : 0x1p-7;
  for (const std::int64_t columns : kColumns) {
    FusedCase fused_case(ShapeOf(Op::kSoftmax, GetParam(), {3, columns}), Seed(columns));
    ASSERT_TRUE(RunFused(fused_case.params(), Mode::kFused));
    const std::vector<double> output = fused_case.output();
    for (std::int64_t row = 0; row < 3; ++row) {
      double sum = 0;
      for (std::int64_t i = 0; i < columns; ++i) sum += output[row * columns + i];
      // float16 loses what is below its least subnormal number.
      EXPECT_NEAR(sum, 1, roundoff + (GetParam() == DataType::kFloat16 ? 0x1p-25 * static_cast<double>(columns) : 0))
          << columns;
    }
  }
}

TEST_P(FusedPropertiesTest, LayerNormOfAConstantRowIsItsBias) {
  for (const std::int64_t columns : kColumns) {
    FusedCase fused_case(ShapeOf(Op::kLayerNorm, GetParam(), {2, columns}), Seed(columns));
    for (std::int64_t i = 0; i < 2 * columns; ++i) fused_case.input().Set(i, i < columns ? 0.75 : -1024);  // exact in sums
    ASSERT_TRUE(RunFused(fused_case.params(), Mode::kFused));
    const std::vector<double> output = fused_case.output();
    for (std::int64_t i = 0; i < 2 * columns; ++i) ASSERT_EQ(output[i], fused_case.bias().Get(i % columns)) << columns;
  }
}

// Numbers that are far from 0 and near each other: what one pass over sums of squares can't do.
TEST_P(FusedPropertiesTest, VarianceKeepsItsDigits) {
  for (const Op op : {Op::kLayerNorm, Op::kAddLayerNorm}) {
    for (const std::int64_t columns : kColumns) {
      FusedShape shape = ShapeOf(op, GetParam(), {3, columns});
      shape.epsilon = 1e-12;
      FusedCase fused_case(shape, Seed(columns));
      for (std::int64_t i = 0; i < 3 * columns; ++i) fused_case.input().Set(i, 512 + static_cast<double>(i * 7 % 5));
      if (op == Op::kAddLayerNorm) {
        for (std::int64_t i = 0; i < 3 * columns; ++i) fused_case.other().Set(i, 0);
      }
      EXPECT_TRUE(IsRight(fused_case, Mode::kFused));
    }
  }
}

// Means at every distance from 0, in elements' standard deviations: near it sums of squares will do, and far from it they
// won't.
TEST_P(FusedPropertiesTest, MeansOfEveryDistance) {
  for (const Op op : {Op::kLayerNorm, Op::kRmsNorm, Op::kAddLayerNorm}) {
    for (const std::int64_t columns : {40, 200, 1000, 4096, 9000, 70000}) {
      constexpr double kDistances[] = {0, 0.5, -2.7, 2.8, -2.9, 3.1, 10, -300};
      constexpr std::int64_t kRows = std::size(kDistances);
      FusedCase fused_case(ShapeOf(op, GetParam(), {kRows, columns}), Seed(columns));
      for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i) {
          fused_case.input().Set(i, fused_case.input().Get(i) + kDistances[row]);
        }
      }
      EXPECT_TRUE(IsRight(fused_case, Mode::kFused));
    }
  }
}

// Squares that float32 does not hold, or holds with few digits.
TEST_P(FusedPropertiesTest, SmallElements) {
  for (const Op op : {Op::kLayerNorm, Op::kRmsNorm}) {
    for (const std::int64_t columns : kColumns) {
      FusedShape shape = ShapeOf(op, GetParam(), {3, columns});
      shape.epsilon = 1e-12;
      FusedCase fused_case(shape, Seed(columns));
      for (std::int64_t i = 0; i < 3 * columns; ++i) {
        fused_case.input().Set(i, std::ldexp(fused_case.input().Get(i), i < columns ? -12 : i < 2 * columns ? -20 : -24));
      }
      EXPECT_TRUE(IsRight(fused_case, Mode::kFused));
    }
  }
}

// Elements whose squares, and whose sums, are beyond the range of float32.
TEST_P(FusedPropertiesTest, LargestElements) {
  for (const Op op : {Op::kLayerNorm, Op::kRmsNorm, Op::kAddRmsNorm, Op::kLayerNormGeluDropout, Op::kSoftmax}) {
    for (const std::int64_t columns : kColumns) {
      FusedCase fused_case(ShapeOf(op, GetParam(), {2, columns}), Seed(columns));
      for (std::int64_t i = 0; i < 2 * columns; ++i) {
        fused_case.input().Set(i, Largest(GetParam()) * (i % 3 == 0 ? -1 : 1) / (1 + static_cast<double>(i % 4)));
        if (op == Op::kAddRmsNorm) fused_case.other().Set(i, 1);
      }
      EXPECT_TRUE(IsRight(fused_case, Mode::kFused));
    }
  }
}

// One row that overflows among rows that don't, where several share a warp.
TEST_P(FusedPropertiesTest, OneLargeRowAmongOthers) {
  for (const std::int64_t columns : {3, 40, 200}) {
    FusedCase fused_case(ShapeOf(Op::kLayerNorm, GetParam(), {33, columns}), Seed(columns));
    for (std::int64_t i = 0; i < columns; ++i) {
      fused_case.input().Set(5 * columns + i, Largest(GetParam()) / (1 + static_cast<double>(i % 5)));
    }
    EXPECT_TRUE(IsRight(fused_case, Mode::kFused));
  }
}

// NaN and infinities come out where the formulas have them, and spoil no other row.
TEST_P(FusedPropertiesTest, NonFiniteElements) {
  for (const Op op : support::RowOps()) {
    for (const std::int64_t columns : kColumns) {
      for (const double poison : {kNaN, kInfinity, -kInfinity}) {
        FusedCase fused_case(ShapeOf(op, GetParam(), {3, columns}), Seed(columns));
        fused_case.input().Set(columns + columns / 2, poison);
        EXPECT_TRUE(IsRight(fused_case, Mode::kFused)) << poison;
        // With a weight of 0 it is NaN that a product makes.
        if (InfoOf(op).weight == Use::kNone || columns > 100) continue;
        FusedCase with_zeros(ShapeOf(op, GetParam(), {3, columns}), Seed(columns));
        with_zeros.input().Set(columns + columns / 2, poison);
        for (std::int64_t i = 0; i < columns; i += 2) with_zeros.weight().Set(i, 0);
        EXPECT_TRUE(IsRight(with_zeros, Mode::kFused)) << poison;
      }
    }
  }
}

TEST_P(FusedPropertiesTest, RowsOfNothingButInfinities) {
  for (const std::int64_t columns : kColumns) {
    FusedCase fused_case(ShapeOf(Op::kSoftmax, GetParam(), {3, columns}), Seed(columns));
    for (std::int64_t i = 0; i < columns; ++i) fused_case.input().Set(i, -kInfinity);
    for (std::int64_t i = 0; i < columns; ++i) fused_case.input().Set(columns + i, i % 2 == 0 ? -kInfinity : 1);
    for (std::int64_t i = 0; i < columns; ++i) fused_case.input().Set(2 * columns + i, kInfinity);
    EXPECT_TRUE(IsRight(fused_case, Mode::kFused));
    EXPECT_TRUE(IsRight(fused_case, Mode::kUnfused));
  }
}

TEST_P(FusedPropertiesTest, ActivationsOverTheWholeRange) {
  const double most_exponent = GetParam() == DataType::kFloat16 ? 13 : 20;  // a product with a normal must not overflow
  for (const Op op : {Op::kGelu, Op::kBiasGelu, Op::kGeluAdd, Op::kSwiglu}) {
    for (const FusedShape& shape : support::VariantsOf(ShapeOf(op, GetParam(), {16, 1000}))) {
      FusedCase fused_case(shape, Seed(0));
      for (std::int64_t i = 0; i < 16000; ++i) {
        const double exponent = -24 + (24 + most_exponent) * static_cast<double>(i / 2 % 1000) / 1000;
        const double magnitude = i < 8000 ? std::exp2(exponent) : static_cast<double>(i - 8000) / 400;
        fused_case.input().Set(i, i % 2 == 0 ? magnitude : -magnitude);
      }
      EXPECT_TRUE(IsRight(fused_case, Mode::kFused));
    }
  }
}

TEST_P(FusedPropertiesTest, DropoutKeepsAndScales) {
  for (const double probability : {0.0, 0.5, 0.9, 1.0, 1e-9}) {
    FusedShape shape = ShapeOf(Op::kLayerNormGeluDropout, GetParam(), {64, 1024});
    shape.dropout.probability = probability;
    FusedCase fused_case(shape, Seed(1));
    ASSERT_TRUE(IsRight(fused_case, Mode::kFused));
    const std::vector<std::uint8_t> mask = fused_case.mask();
    const auto kept = static_cast<double>(std::ranges::count(mask, 1)) / static_cast<double>(mask.size());
    // 65536 draws: five standard deviations are at most 0.01.
    EXPECT_NEAR(kept, 1 - probability, probability == 0 || probability == 1 ? 0 : 0.01);
  }
}

// The mask is a function of seed, offset and position: not of a row's length, of the type or of the mode.
TEST_P(FusedPropertiesTest, DropoutMaskIsTheSameForAnyTiling) {
  const std::vector<RowsByColumns> sizes = {{1, 36036}, {36036, 1}, {4, 9009}, {52, 693}, {2, 18018}};
  for (const RowsByColumns& size : sizes) {
    FusedCase fused_case(ShapeOf(Op::kLayerNormGeluDropout, GetParam(), size), Seed(2));
    for (const Mode mode : support::kFusedModes) {
      ASSERT_TRUE(RunFused(fused_case.params(), mode));
      const std::vector<std::uint8_t> mask = fused_case.mask();
      for (std::size_t i = 0; i < mask.size(); ++i) {
        ASSERT_EQ(mask[i], reference::IsKept(fused_case.shape().dropout, static_cast<std::int64_t>(i))) << i;
      }
    }
  }
}

TEST_P(FusedPropertiesTest, DropoutDependsOnSeedAndOffset) {
  FusedShape shape = ShapeOf(Op::kLayerNormGeluDropout, GetParam(), {4, 1000});
  std::vector<std::vector<std::uint8_t>> masks;
  for (const DropoutOptions& options : {DropoutOptions{0.5, 1, 0},
                                        {0.5, 2, 0},
                                        {0.5, 1, 1},
                                        {0.5, 1, std::uint64_t{1} << 32},
                                        {0.5, (std::uint64_t{1} << 32) + 1, 0}}) {
    shape.dropout = options;
    FusedCase fused_case(shape, Seed(3));
    ASSERT_TRUE(RunFused(fused_case.params(), Mode::kFused));
    for (const std::vector<std::uint8_t>& mask : masks) EXPECT_NE(mask, fused_case.mask());
    masks.push_back(fused_case.mask());
  }
}

TEST_P(FusedPropertiesTest, TwoRunsGiveEqualBytes) {
  for (const Op op : support::RowOps()) {
    FusedCase fused_case(ShapeOf(op, GetParam(), {7, 5001}), Seed(4));
    ASSERT_TRUE(RunFused(fused_case.params(), Mode::kFused));
    const std::vector<double> first = fused_case.output();
    ASSERT_TRUE(RunFused(fused_case.params(), Mode::kFused));
    EXPECT_EQ(first, fused_case.output()) << Name(op);
  }
}

// A row's result does not depend on its place among others.
TEST_P(FusedPropertiesTest, ABatchEqualsItsRowsAlone) {
  for (const Op op : {Op::kLayerNorm, Op::kRmsNorm, Op::kSoftmax, Op::kSwiglu}) {
    for (const std::int64_t columns : {64, 4096}) {
      FusedCase batch(ShapeOf(op, GetParam(), {5, columns}), Seed(5));
      FusedCase alone(ShapeOf(op, GetParam(), {1, columns}), Seed(5));
      for (std::int64_t i = 0; i < columns; ++i) {
        alone.input().Set(i, batch.input().Get(3 * columns + i));
        if (op == Op::kSwiglu) alone.other().Set(i, batch.other().Get(3 * columns + i));
      }
      ASSERT_TRUE(RunFused(batch.params(), Mode::kFused));
      ASSERT_TRUE(RunFused(alone.params(), Mode::kFused));
      const std::vector<double> rows = batch.output(), row = alone.output();
      EXPECT_TRUE(std::equal(row.begin(), row.end(), rows.begin() + 3 * columns)) << Name(op) << columns;
    }
  }
}

}  // namespace
}  // namespace ridgeline::kernels::fused
