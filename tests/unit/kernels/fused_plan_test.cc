// The host's part of fused operations: what is refused, what it costs, how rows are cut, what the unfused chain is made of.
#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/common/data_type.h"
#include "kernels/fused/cost.h"
#include "kernels/fused/fused.h"
#include "kernels/fused/op_info.h"
#include "kernels/fused/row_schedule.h"
#include "kernels/fused/steps.h"
#include "tests/support/fused_shapes.h"

namespace ridgeline::kernels::fused {
namespace {

using support::ShapeOf;
using ::testing::HasSubstr;

constexpr CudaLimits kHopper = {.compute_capability = 90, .num_sms = 132};
constexpr CudaLimits kAmpere = {.compute_capability = 80, .num_sms = 108};

FusedShape Rope(Op op) {
  FusedShape shape = support::RopeShapes(DataType::kBFloat16)[4];
  shape.op = op;
  return shape;
}

TEST(FusedSupportTest, TakesEveryShapeOfTheTable) {
  for (const DataType type : support::kFusedTypes) {
    for (const Op op : support::RowOps()) {
      for (const support::RowsByColumns& size : support::FusedSizes()) EXPECT_EQ(WhyNot(ShapeOf(op, type, size)), "");
    }
    for (FusedShape shape : support::RopeShapes(type)) EXPECT_EQ(WhyNot(shape), "");
  }
}

TEST(FusedSupportTest, NamesWhatIsWrong) {
  FusedShape shape = ShapeOf(Op::kLayerNormGeluDropout, DataType::kBFloat16, {4, 64});
  const auto reason = [&shape](auto change) {
    FusedShape changed = shape;
    change(changed);
    return WhyNot(changed);
  };
  EXPECT_EQ(reason([](FusedShape& s) { s.row_elems = 0; }), "row_elems is 0; fused operations support 1 to 262144");
  EXPECT_THAT(reason([](FusedShape& s) { s.row_elems = 262145; }), HasSubstr("row_elems is 262145"));
  EXPECT_THAT(reason([](FusedShape& s) { s.num_rows = -1; }), HasSubstr("num_rows is -1"));
  EXPECT_THAT(reason([](FusedShape& s) { s.num_rows = std::int64_t{1} << 60; }), HasSubstr("no memory holds so many rows"));
  EXPECT_THAT(reason([](FusedShape& s) { s.data_type = DataType::kInt32; }), HasSubstr("data_type is int32"));
  EXPECT_THAT(reason([](FusedShape& s) { s.epsilon = -1; }), HasSubstr("epsilon is -1"));
  EXPECT_THAT(reason([](FusedShape& s) { s.epsilon = std::numeric_limits<double>::quiet_NaN(); }), HasSubstr("epsilon is nan"));
  EXPECT_THAT(reason([](FusedShape& s) { s.dropout.probability = 1.5; }), HasSubstr("probability is 1.5"));
  EXPECT_THAT(reason([](FusedShape& s) { s.dropout.probability = std::numeric_limits<double>::quiet_NaN(); }),
              HasSubstr("probability is nan"));

  shape = Rope(Op::kRopeAppend);
  EXPECT_EQ(WhyNot(shape), "");
  EXPECT_THAT(reason([](FusedShape& s) { s.rope.head_dim = 0; }), HasSubstr("head_dim is 0"));
  EXPECT_THAT(reason([](FusedShape& s) { s.rope.rotary_dim = 130; }), HasSubstr("rotary_dim is 130"));
  EXPECT_THAT(reason([](FusedShape& s) { s.rope.rotary_dim = 7; }), HasSubstr("rotary_dim is 7"));
  EXPECT_THAT(reason([](FusedShape& s) { s.rope.base = 0; }), HasSubstr("base is 0"));
  EXPECT_THAT(reason([](FusedShape& s) { s.row_elems = 200; }), HasSubstr("row_elems is 200; a row has whole heads of 128"));
  EXPECT_THAT(reason([](FusedShape& s) { s.key_elems = 0; }), HasSubstr("key_elems is 0"));
  EXPECT_THAT(reason([](FusedShape& s) { s.value_elems = 3; }), HasSubstr("6 bytes"));
}

TEST(FusedCostTest, CountsEachTensorOnce) {
  constexpr std::int64_t kRows = 3, kColumns = 100, kTensor = kRows * kColumns * 2, kColumn = kColumns * 2;
  const auto bytes = [](Op op) { return CountCost(ShapeOf(op, DataType::kBFloat16, {kRows, kColumns}), Mode::kFused).bytes; };
  EXPECT_EQ(bytes(Op::kLayerNorm), 2 * kTensor + 2 * kColumn);
  EXPECT_EQ(bytes(Op::kRmsNorm), 2 * kTensor + kColumn);
  EXPECT_EQ(bytes(Op::kSoftmax), 2 * kTensor);
  EXPECT_EQ(bytes(Op::kGelu), 2 * kTensor);
  EXPECT_EQ(bytes(Op::kBiasGelu), 2 * kTensor + kColumn);
  EXPECT_EQ(bytes(Op::kGeluAdd), 3 * kTensor);
  EXPECT_EQ(bytes(Op::kAddLayerNorm), 4 * kTensor + 2 * kColumn);
  EXPECT_EQ(bytes(Op::kAddRmsNorm), 4 * kTensor + kColumn);
  EXPECT_EQ(bytes(Op::kLayerNormGeluDropout), 2 * kTensor + 2 * kColumn + kRows * kColumns);
  EXPECT_EQ(bytes(Op::kSwiglu), 3 * kTensor);
  // 5 tokens of 32 and 8 heads of 128, values of 1024 elements.
  EXPECT_EQ(CountCost(Rope(Op::kRope), Mode::kFused).bytes, 2 * 5 * 4096 * 2);
  EXPECT_EQ(CountCost(Rope(Op::kRopeAppend), Mode::kFused).bytes, 2 * 5 * (4096 + 1024 + 1024) * 2);
}

// By hand: max, subtract, exponential, sum, divide of a [4, 64] float32 tensor; statistics are [4] float32.
TEST(FusedCostTest, AddsUpTheStepsOfSoftmax) {
  const FusedShape shape = ShapeOf(Op::kSoftmax, DataType::kFloat32, {4, 64});
  constexpr std::int64_t kTensor = 4 * 64 * 4, kStatistic = 4 * 4;
  const Cost unfused = CountCost(shape, Mode::kUnfused);
  EXPECT_EQ(unfused.num_kernels, 5);
  EXPECT_EQ(unfused.bytes, (kTensor + kStatistic) + (2 * kTensor + kStatistic) + 2 * kTensor + (kTensor + kStatistic) +
                               (2 * kTensor + kStatistic));
  EXPECT_EQ(unfused.flops, 5 * 4 * 64);
  const Cost fused = CountCost(shape, Mode::kFused);
  EXPECT_EQ(fused.flops, unfused.flops);
  EXPECT_EQ(fused.num_kernels, 1);
}

TEST(FusedCostTest, UnfusedMovesMoreAndNeedsWorkspace) {
  for (const Op op : support::RowOps()) {
    const FusedShape shape = ShapeOf(op, DataType::kFloat16, {64, 1024});
    const Cost fused = CountCost(shape, Mode::kFused), unfused = CountCost(shape, Mode::kUnfused);
    EXPECT_GT(unfused.bytes, fused.bytes) << Name(op);
    EXPECT_EQ(unfused.flops, fused.flops) << Name(op);
    EXPECT_GT(unfused.num_kernels, 1) << Name(op);
    EXPECT_EQ(WorkspaceBytes(shape, Mode::kFused), 0);
    EXPECT_GT(WorkspaceBytes(shape, Mode::kUnfused), 0) << Name(op);
    // Values give their memory back: no chain needs more than a few tensors at a time.
    EXPECT_LE(WorkspaceBytes(shape, Mode::kUnfused), 4 * 64 * 1024 * 2) << Name(op);
  }
}

TEST(FusedCostTest, Saturates) {
  FusedShape shape = ShapeOf(Op::kLayerNorm, DataType::kFloat32, {std::int64_t{1} << 44, 262144});
  EXPECT_EQ(CountCost(shape, Mode::kFused).bytes, std::numeric_limits<std::int64_t>::max());
  EXPECT_GE(WorkspaceBytes(shape, Mode::kUnfused), std::int64_t{1} << 60);
}

// Whatever lies in a value's memory when a step reads it is that value: no later one has taken the place.
TEST(FusedChainTest, NoStepReadsWhatAnotherOverwrote) {
  for (int op = 0; op < kNumOps; ++op) {
    const FusedShape shape = InfoOf(static_cast<Op>(op)).has_rope ? Rope(static_cast<Op>(op))
                                                                  : ShapeOf(static_cast<Op>(op), DataType::kFloat16, {8, 64});
    const Chain chain = UnfusedChain(shape);
    std::set<std::int64_t> written;
    for (const Step& step : chain.steps) {
      for (const Value* value : {&step.a, &step.b}) {
        if (value->buffer != Buffer::kWorkspace) continue;
        EXPECT_TRUE(written.contains(value->workspace_offset_bytes)) << Name(static_cast<Op>(op));
        if (step.result.buffer == Buffer::kWorkspace) {
          EXPECT_NE(value->workspace_offset_bytes, step.result.workspace_offset_bytes) << Name(static_cast<Op>(op));
        }
      }
      if (step.result.buffer == Buffer::kWorkspace) {
        written.insert(step.result.workspace_offset_bytes);
        EXPECT_LE(step.result.workspace_offset_bytes + BytesOf(shape, step.result.extent), chain.workspace_bytes);
        EXPECT_EQ(step.result.workspace_offset_bytes % 256, 0);
      }
    }
  }
}

RowProblem ProblemOf(DataType type, std::int64_t rows, std::int64_t columns, int num_inputs = 1) {
  return {.data_type = type,
          .num_rows = rows,
          .row_elems = columns,
          .num_inputs = num_inputs,
          .is_words = columns * ElementBytes(type) % 16 == 0};
}

TEST(FusedScheduleTest, TeamsHoldTheirRows) {
  for (const DataType type : support::kFusedTypes) {
    for (const CudaLimits& limits : {kHopper, kAmpere}) {
      for (const support::RowsByColumns& size : support::FusedSizes()) {
        for (const int num_inputs : {1, 2}) {
          const RowProblem problem = ProblemOf(type, size.rows, size.columns, num_inputs);
          const RowSchedule schedule = ScheduleRows(problem, limits);
          const std::int64_t held = std::int64_t{schedule.threads} * schedule.cluster_blocks * schedule.chunks * kThreadElems;
          // A row that is not whole words may begin at a word's last element.
          const std::int64_t shift = problem.is_words ? 0 : 16 / ElementBytes(type) - 1;
          EXPECT_GE(held, size.columns + shift);
          EXPECT_LE(schedule.threads * schedule.block_rows, 1024);
          EXPECT_TRUE(schedule.threads <= 32 ? 32 % schedule.threads == 0 : schedule.threads % 32 == 0) << schedule.threads;
          EXPECT_TRUE(schedule.threads <= 32 || schedule.block_rows == 1);
          EXPECT_EQ(schedule.num_blocks % schedule.cluster_blocks, 0);
          EXPECT_EQ(schedule.num_blocks == 0, size.rows == 0);
        }
      }
    }
  }
}

TEST(FusedScheduleTest, HopperReadsEveryAlignedRowOnce) {
  for (const DataType type : support::kFusedTypes) {
    for (const std::int64_t columns : {8, 4096, 65536, 131072, 262144}) {
      EXPECT_EQ(ScheduleRows(ProblemOf(type, 100, columns), kHopper).chunks, 1) << columns;
      EXPECT_EQ(ScheduleRows(ProblemOf(type, 100, columns), kAmpere).cluster_blocks, 1);
    }
    EXPECT_GT(ScheduleRows(ProblemOf(type, 1, 262144), kAmpere).chunks, 1);
  }
}

// Blocks that go from row to row are all resident: none begins when others have ended.
TEST(FusedScheduleTest, StagedBlocksFitTheDevice) {
  for (const DataType type : support::kFusedTypes) {
    for (const std::int64_t columns : {32768, 65536, 262144}) {
      for (const int num_inputs : {1, 2}) {
        const RowSchedule schedule = ScheduleRows(ProblemOf(type, 100000, columns, num_inputs), kHopper);
        if (schedule.stage_bytes == 0) continue;
        EXPECT_LE(schedule.num_blocks, kHopper.num_sms);
        EXPECT_LE(schedule.stage_bytes, 128 << 10);
        EXPECT_EQ(schedule.stage_bytes, schedule.threads * kThreadElems * ElementBytes(type) * num_inputs);
      }
    }
  }
  EXPECT_GT(ScheduleRows(ProblemOf(DataType::kBFloat16, 4096, 65536), kHopper).stage_bytes, 0);
  EXPECT_EQ(ScheduleRows(ProblemOf(DataType::kBFloat16, 4096, 65536), kAmpere).stage_bytes, 0);
}

}  // namespace
}  // namespace ridgeline::kernels::fused
