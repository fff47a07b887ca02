// The decode kernel on shapes of its own, and what only it promises: a merge workspace that is left as it was found, launches
// side by side, lengths that change between replays of a graph, nothing in keys and values that stops it.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/decode/decode_cuda.h"
#include "kernels/attention/decode/decode_plan_cuda.h"
#include "kernels/attention/plan.h"
#include "kernels/common/data_type.h"
#include "kernels/common/rounding.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/read_memory.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_shapes.h"
#include "tests/unit/kernels/attention_runner.h"

namespace ridgeline::kernels::attention {
namespace {

using gpu::Check;
using gpu::GuardedDeviceArray;
using gpu::Stream;
using support::AttentionCase;
using support::AttentionOptions;
using support::AttentionProblem;
using support::Causal;
using support::DeriveSeed;
using support::Paged;
using support::RaggedProblem;

// About tiles and pages; then enough to be cut over blocks.
const std::vector<std::int64_t> kLengths = {0, 1, 15, 16, 17, 63, 64, 65, 200};
const std::vector<std::int64_t> kLongLengths = {4097, 0, 1000, 16};
constexpr std::int64_t kPages[] = {1, 7, 16, 64, 100, 256, 0};  // 0: dense
constexpr std::int64_t kHeadDims[] = {64, 80, 96, 128, 256};
constexpr std::int64_t kGroups[] = {1, 4, 5, 6, 7, 8, 16};

class DecodeTest : public ::testing::TestWithParam<DataType> {
 protected:
  AttentionProblem Problem(std::int64_t query_tokens, std::vector<std::int64_t> key_tokens, std::int64_t group,
                           std::int64_t kv_heads, std::int64_t head_dim, std::int64_t page_tokens) const {
    const std::vector<std::int64_t> queries(key_tokens.size(), query_tokens);
    AttentionProblem problem = RaggedProblem(queries, std::move(key_tokens), group * kv_heads, kv_heads, head_dim);
    return page_tokens > 0 ? Paged(std::move(problem), page_tokens) : problem;
  }

  void ExpectRight(const AttentionProblem& problem, const AttentionOptions& options = {}) {
    AttentionCase attention_case(problem, options, GetParam(), DeriveSeed("decode", ++num_cases_));
    ASSERT_GT(Plan(Algorithm::kFlash, attention_case.params()).decode.num_blocks, 0) << attention_case.name();
    EXPECT_TRUE(IsRight(Algorithm::kFlash, attention_case));
  }

 private:
  std::uint64_t num_cases_ = 0;
};

INSTANTIATE_TEST_SUITE_P(All, DecodeTest, ::testing::Values(DataType::kFloat16, DataType::kBFloat16),
                         [](const auto& param) { return Name(param.param); });

TEST_P(DecodeTest, EveryGroupAndHeadDim) {
  std::size_t turn = 0;
  for (const std::int64_t group : kGroups) {
    for (const std::int64_t head_dim : kHeadDims) {
      ExpectRight(Problem(1, kLengths, group, turn % 2 + 1, head_dim, kPages[turn % std::size(kPages)]));
      ++turn;
    }
  }
}

TEST_P(DecodeTest, EveryPageAndNumberOfQueries) {
  std::size_t turn = 0;
  for (const std::int64_t page_tokens : kPages) {
    for (const std::int64_t query_tokens : {1, 2, 4}) {
      for (const AttentionOptions& options : {AttentionOptions(), Causal()}) {
        ExpectRight(Problem(query_tokens, kLengths, 4, 2, kHeadDims[turn++ % std::size(kHeadDims)], page_tokens), options);
      }
    }
  }
}

TEST_P(DecodeTest, LongerLengths) {
  std::size_t turn = 0;
  for (const std::int64_t page_tokens : kPages) {
    const std::int64_t head_dim = kHeadDims[turn % std::size(kHeadDims)];
    ExpectRight(Problem(1, kLongLengths, kGroups[turn++ % std::size(kGroups)], 1, head_dim, page_tokens));
  }
}

TEST_P(DecodeTest, HeadDimsBetweenThoseBuilt) {
  for (const std::int64_t head_dim : {8, 24, 72, 88, 104, 136, 248}) {
    AttentionProblem problem = Problem(1, {0, 5, 200}, 3, 2, head_dim, 16);
    ExpectRight(problem);
    problem.value_head_dim = head_dim > 64 ? 64 : 128;
    problem.name += " other values";
    ExpectRight(problem);
  }
}

TEST_P(DecodeTest, PairsOfOptions) {
  std::size_t turn = 0;
  for (const AttentionOptions& options : support::OptionPairs()) {
    const std::int64_t page_tokens = kPages[turn % std::size(kPages)];
    const std::int64_t head_dim = kHeadDims[turn++ % std::size(kHeadDims)];
    AttentionProblem problem = RaggedProblem({1, 3, 2, 4, 1, 0, 2}, {70, 41, 1, 0, 9, 3, 16}, 8, 2, head_dim);
    if (page_tokens > 0) problem = Paged(std::move(problem), page_tokens);
    if (support::Allowed(problem, options)) ExpectRight(problem, options);
  }
}

// Of a dense batch, keys that are stored and not valid lie between those of its sequences.
TEST_P(DecodeTest, DenseBatches) {
  for (const std::int64_t head_dim : kHeadDims) {
    ExpectRight(support::DenseProblem(3, 2, 129, 8, 2, head_dim, head_dim > 64 ? 64 : 128), Causal());
    ExpectRight(support::PaddedProblem(1, 700, {0, 700, 1, 333, 16}, 12, 4, head_dim));
  }
  ExpectRight(support::DenseProblem(2, 1, 9000, 32, 8, 128, 128));
}

// Bias too, which only dense batches may have.
TEST_P(DecodeTest, PairsOfOptionsOfDenseBatches) {
  std::size_t turn = 0;
  for (const AttentionOptions& options : support::OptionPairs()) {
    const std::int64_t head_dim = kHeadDims[turn++ % std::size(kHeadDims)];
    ExpectRight(support::PaddedProblem(3, 50, {50, 33, 0}, 8, 2, head_dim), options);
  }
}

// Keys that a bias hides from some heads of a group: their values reach the others alone.
TEST_P(DecodeTest, NanInValuesHiddenByTheBias) {
  AttentionOptions options;
  options.bias = support::Bias::kFull;
  AttentionCase attention_case(support::DenseProblem(1, 2, 100, 4, 1, 64, 64), options, GetParam(), DeriveSeed("biased"));
  attention_case.value().Set(70 * 64 + 5, std::numeric_limits<double>::quiet_NaN());
  // [head, query, key]
  for (const std::int64_t row : {0, 3, 4}) {
    attention_case.bias().Set(row * 100 + 70, -std::numeric_limits<double>::infinity());
  }
  EXPECT_TRUE(IsRight(Algorithm::kFlash, attention_case));
}

// Keys of one sequence on every block of the device, and windows that begin far into it.
TEST_P(DecodeTest, OneLongSequence) {
  for (const std::int64_t kv_heads : {1, 8}) {
    ExpectRight(Problem(1, {20011}, 4, kv_heads, 64, 16));
  }
  AttentionOptions window = Causal();
  window.name = "window";
  window.window_left = 9000;
  ExpectRight(Problem(3, {20011}, 4, 2, 128, 64), window);
}

TEST_P(DecodeTest, ManyShortSequences) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 300; ++i) lengths.push_back(i * 37 % 83);
  ExpectRight(Problem(1, lengths, 4, 8, 64, 16));
  ExpectRight(Problem(2, lengths, 5, 1, 128, 7), Causal());
}

// Every head group that a block may walk together.
TEST_P(DecodeTest, ManyEqualSequences) {
  for (const std::int64_t kv_heads : {1, 2, 4, 8})
    ExpectRight(Problem(1, std::vector<std::int64_t>(120, 150), 2, kv_heads, 64, 16));
}

// Some few, one much longer than the others, and more than a warp has lanes.
TEST_P(DecodeTest, UnevenLengths) {
  const std::vector<std::int64_t> lengths = {1500, 30, 0, 1333, 700, 64, 1100, 900};
  for (const std::int64_t kv_heads : {1, 2, 4, 8}) {
    for (const std::int64_t page_tokens : {16, 7, 0}) ExpectRight(Problem(1, lengths, 2, kv_heads, 64, page_tokens));
  }
  ExpectRight(Problem(3, lengths, 4, 2, 128, 16), Causal());
  std::vector<std::int64_t> one_long(20, 40);
  one_long[7] = 9000;
  ExpectRight(Problem(1, one_long, 4, 4, 64, 16));
  std::vector<std::int64_t> many;
  for (std::int64_t i = 0; i < 40; ++i) many.push_back(i * 37 % 183);
  ExpectRight(Problem(1, many, 4, 2, 128, 16));
}

// Values that no query may see do not count, values that some see count for them alone.
TEST_P(DecodeTest, NanAndInfInValuesReachOnlyWhoSeesThem) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  AttentionCase attention_case(Problem(4, {100, 300}, 2, 2, 64, 16), Causal(), GetParam(), DeriveSeed("nan values"));
  // The last keys, of which a causal mask shows each to one query more.
  for (const std::int64_t key : {97, 99, 398}) {
    attention_case.value().Set((key * 2 + 1) * 64 + 5, key == 99 ? inf : nan);
  }
  EXPECT_TRUE(IsRight(Algorithm::kFlash, attention_case));
}

// Every bit pattern that looks like an empty word of the workspace: all bits set is a NaN of every float type.
TEST_P(DecodeTest, NothingInKeysAndValuesStopsIt) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double filling : {inf, -inf, std::numeric_limits<double>::quiet_NaN()}) {
    AttentionCase attention_case(Problem(1, {5000, 17, 3000}, 4, 2, 64, 16), {}, GetParam(), DeriveSeed("stops"));
    for (support::TestTensor* tensor : {&attention_case.key(), &attention_case.value()}) {
      if (std::isnan(filling)) {
        std::ranges::fill(tensor->bytes(), std::byte{0xff});
      } else {
        for (std::int64_t i = 0; i < tensor->elements(); i += 3) tensor->Set(i, filling);
      }
    }
    EXPECT_TRUE(RunKernel(Algorithm::kFlash, attention_case.params()));
    if (std::isnan(filling)) {
      for (std::int64_t i = 0; i < attention_case.output().elements(); ++i) {
        ASSERT_TRUE(std::isnan(attention_case.output().Get(i))) << i;
      }
    }
  }
}

// What the sequences use: entries of the block table, and pages up to the last one.
std::pair<std::int64_t, std::int64_t> UsedPages(const AttentionParams& params) {
  std::int64_t entries = 0, pages = 0;
  for (std::int64_t i = 0; i < params.shape.num_sequences; ++i) {
    const Sequence& sequence = params.sequences[i];
    const std::int64_t count = CeilDivide(sequence.key_tokens, params.shape.page_tokens);
    entries = std::max(entries, sequence.key_begin + count);
    for (std::int64_t j = 0; j < count; ++j) {
      pages = std::max(pages, params.block_table[sequence.key_begin + j] + std::int64_t{1});
    }
  }
  return {entries, pages};
}

// A case's tensors and a merge workspace of its own in the device's memory.
class DeviceCase {
 public:
  explicit DeviceCase(AttentionCase& attention_case) : DeviceCase(attention_case.params(), attention_case) {}
  DeviceCase(const AttentionParams& host_params, AttentionCase& attention_case) : params_(host_params) {
    plan_ = Plan(Algorithm::kFlash, params_);
    const AttentionShape& shape = params_.shape;
    const auto [entries, pages] = UsedPages(params_);
    const std::int64_t page_rows = pages * shape.page_tokens * shape.kv_heads * ElementBytes(shape.data_type);
    params_.sequences = Upload(params_.sequences, shape.num_sequences * static_cast<std::int64_t>(sizeof(Sequence)));
    params_.block_table = Upload(params_.block_table, entries * 4);
    params_.query = Upload(params_.query, static_cast<std::int64_t>(attention_case.query().bytes().size()));
    params_.key = Upload(params_.key, page_rows * shape.head_dim);
    params_.value = Upload(params_.value, page_rows * shape.value_head_dim);
    output_ = Add(static_cast<std::int64_t>(attention_case.output().bytes().size()));
    log_sum_exp_ = Add(static_cast<std::int64_t>(attention_case.log_sum_exp().bytes().size()));
    merge_workspace_ = Add(plan_.merge_workspace_bytes);
    Check(cudaMemsetAsync(merge_workspace_->data(), 0xff, plan_.merge_workspace_bytes, Stream()), "cudaMemsetAsync");
    params_.output = output_->data();
    params_.log_sum_exp = reinterpret_cast<float*>(log_sum_exp_->data());
    params_.merge_workspace = merge_workspace_->data();
    Check(cudaStreamSynchronize(Stream()), "cudaStreamSynchronize");
  }

  AttentionParams& params() { return params_; }
  void Launch(cudaStream_t stream) const { Check(LaunchDecode(plan_, params_, stream), "LaunchDecode"); }

  std::vector<std::byte> Output() const {
    std::vector<std::byte> output(output_->size_bytes());
    output_->Download(output.data());
    return output;
  }

  // Once all launches are complete.
  ::testing::AssertionResult IsRight(AttentionCase& attention_case) const {
    const std::vector<std::byte> output = Output();
    std::vector<float> log_sum_exp(log_sum_exp_->size_bytes() / 4);
    log_sum_exp_->Download(log_sum_exp.data());
    const std::vector<std::byte> all_ones(merge_workspace_->size_bytes(), std::byte{0xff});
    if (!merge_workspace_->Holds(all_ones.data())) return ::testing::AssertionFailure() << "the merge workspace is not clean";
    return attention_case.AnswerIsRight(output, log_sum_exp);
  }

 private:
  GuardedDeviceArray* Add(std::int64_t size_bytes) {
    arrays_.push_back(std::make_unique<GuardedDeviceArray>(size_bytes));
    return arrays_.back().get();
  }
  template <typename T>
  T* Upload(T* host, std::int64_t size_bytes) {
    GuardedDeviceArray* const array = Add(size_bytes);
    array->Upload(host);
    return reinterpret_cast<T*>(array->data());
  }

  AttentionParams params_;
  AttentionPlan plan_;
  std::vector<std::unique_ptr<GuardedDeviceArray>> arrays_;
  GuardedDeviceArray *output_, *log_sum_exp_, *merge_workspace_;
};

TEST_P(DecodeTest, RunsGiveEqualBytes) {
  AttentionCase attention_case(Problem(1, {9000, 17, 1500, 0, 4000}, 4, 8, 64, 16), {}, GetParam(), DeriveSeed("equal"));
  const DeviceCase device_case(attention_case);
  std::vector<std::byte> first;
  for (int i = 0; i < 100; ++i) {
    device_case.Launch(Stream());
    const std::vector<std::byte> output = device_case.Output();
    if (i == 0) first = output;
    ASSERT_TRUE(output == first) << i;
  }
  EXPECT_TRUE(device_case.IsRight(attention_case));
}

// Two lanes, and a third stream whose kernels take the multiprocessors away from both.
TEST_P(DecodeTest, LanesSideBySide) {
  AttentionCase long_case(Problem(1, {9000, 17, 1500}, 4, 8, 128, 16), {}, GetParam(), DeriveSeed("lane", 0));
  AttentionCase short_case(Problem(2, {700, 700, 3}, 4, 2, 64, 7), {}, GetParam(), DeriveSeed("lane", 1));
  DeviceCase long_lane(long_case), short_lane(short_case);
  const GuardedDeviceArray memory(256 << 20), sink(4);
  cudaStream_t streams[3];
  for (cudaStream_t& stream : streams) Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  Check(cudaStreamSynchronize(Stream()), "cudaStreamSynchronize");
  for (int i = 0; i < 200; ++i) {
    long_lane.Launch(streams[0]);
    short_lane.Launch(streams[1]);
    if (i % 4 == 0) {
      Check(gpu::LaunchRead(memory.data(), memory.size_bytes(), reinterpret_cast<std::uint32_t*>(sink.data()), streams[2]),
            "LaunchRead");
    }
  }
  for (const cudaStream_t stream : streams) {
    Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    Check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  }
  EXPECT_TRUE(long_lane.IsRight(long_case));
  EXPECT_TRUE(short_lane.IsRight(short_case));
}

// What was captured once computes whatever the sequences then are.
TEST_P(DecodeTest, ReplaysFollowTheLengths) {
  AttentionCase attention_case(Problem(1, {2000, 2000, 2000}, 2, 4, 64, 16), {}, GetParam(), DeriveSeed("replay"));
  DeviceCase device_case(attention_case);
  const std::vector<Sequence> sequences(attention_case.params().sequences, attention_case.params().sequences + 3);
  Sequence* const device_sequences = const_cast<Sequence*>(device_case.params().sequences);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  Check(cudaStreamBeginCapture(Stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  device_case.Launch(Stream());
  Check(cudaStreamEndCapture(Stream(), &graph), "cudaStreamEndCapture");
  Check(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
  for (const std::vector<std::int64_t>& lengths :
       std::vector<std::vector<std::int64_t>>{{2000, 2000, 2000}, {1, 0, 17}, {0, 0, 0}, {1999, 64, 1000}, {100, 100, 100}}) {
    std::vector<Sequence> now = sequences;
    for (std::size_t i = 0; i < now.size(); ++i) now[i].key_tokens = lengths[i];
    Check(cudaMemcpyAsync(device_sequences, now.data(), now.size() * sizeof(Sequence), cudaMemcpyHostToDevice, Stream()),
          "upload");
    Check(cudaGraphLaunch(replay, Stream()), "cudaGraphLaunch");
    Check(cudaStreamSynchronize(Stream()), "cudaStreamSynchronize");
    // The same rows in a problem of these lengths.
    AttentionCase shorter(Problem(1, lengths, 2, 4, 64, 16), {}, GetParam(), attention_case.seed());
    for (std::int64_t s = 0, to = 0; s < 3; ++s) {
      for (std::int64_t i = 0; i < lengths[s] * 4 * 64; ++i, ++to) {
        shorter.key().Set(to, attention_case.key().Get(s * 2000 * 4 * 64 + i));
        shorter.value().Set(to, attention_case.value().Get(s * 2000 * 4 * 64 + i));
      }
    }
    EXPECT_TRUE(device_case.IsRight(shorter)) << lengths[0];
  }
  Check(cudaGraphExecDestroy(replay), "cudaGraphExecDestroy");
  Check(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

// Pages whose offset in bytes needs more than 32 bits.
TEST_P(DecodeTest, PagesBeyond4GiB) {
  constexpr std::int64_t kPageBytes = 16 * 2 * 128 * 2;
  constexpr std::int64_t kFarPages = (std::int64_t{1} << 32) / kPageBytes + 1;
  AttentionCase attention_case(Problem(1, {200, 33}, 4, 2, 128, 16), {}, GetParam(), DeriveSeed("far"));
  const AttentionParams host_params = attention_case.params();
  DeviceCase device_case(host_params, attention_case);
  const auto [entries, pages] = UsedPages(host_params);
  DeviceMemory far_key((kFarPages + pages) * kPageBytes), far_value((kFarPages + pages) * kPageBytes);
  if (!far_key.allocated() || !far_value.allocated()) GTEST_SKIP() << "too little memory on the device";
  AttentionParams& params = device_case.params();
  for (const auto& [from, to] : {std::pair(params.key, far_key.data()), std::pair(params.value, far_value.data())}) {
    Check(cudaMemcpyAsync(static_cast<char*>(to) + kFarPages * kPageBytes, from, pages * kPageBytes, cudaMemcpyDeviceToDevice,
                          Stream()),
          "copy");
  }
  std::vector<std::int32_t> far_table(host_params.block_table, host_params.block_table + entries);
  for (std::int32_t& page : far_table) page = page < pages ? page + static_cast<std::int32_t>(kFarPages) : page;
  GuardedDeviceArray device_table(entries * 4);
  device_table.Upload(far_table.data());
  params.block_table = reinterpret_cast<const std::int32_t*>(device_table.data());
  params.key = far_key.data();
  params.value = far_value.data();
  device_case.Launch(Stream());
  Check(cudaStreamSynchronize(Stream()), "cudaStreamSynchronize");
  EXPECT_TRUE(device_case.IsRight(attention_case));
}

}  // namespace
}  // namespace ridgeline::kernels::attention
