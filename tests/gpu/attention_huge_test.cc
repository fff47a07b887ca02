// One sequence whose keys and values have more than 2^31 elements each.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "kernels/microbench/microbench_cuda.h"
#include "tests/gpu/gpu.h"
#include "tests/reference/attention_reference.h"
#include "tests/support/attention_case.h"
#include "tests/unit/kernels/attention_runner.h"

namespace ridgeline::kernels::attention {
namespace {

using gpu::Check;
using gpu::Stream;
using support::TestTensor;

constexpr std::int64_t kHeads = 8, kDim = 128, kRowElems = kHeads * kDim;
constexpr std::int64_t kKeyTokens = (std::int64_t{1} << 31) / kRowElems + 1000;
constexpr double kCommonValue = 0.75, kNeedleValue = -3;

class AttentionHugeTest : public ::testing::TestWithParam<std::tuple<Algorithm, DataType>> {
 protected:
  DataType type() const { return std::get<1>(GetParam()); }

  void SetUp() override {
    const std::int64_t bytes = kKeyTokens * kRowElems * ElementBytes(type());
    key_.emplace(bytes);
    value_.emplace(bytes);
    if (!key_->allocated() || !value_->allocated()) GTEST_SKIP() << "this GPU has less memory than two arrays of " << bytes;
    Check(microbench::LaunchFillNormal(type(), kKeyTokens * kRowElems, 1, 0, 1, key_->data(), Stream()), "fill");
    Check(microbench::LaunchFillNormal(type(), kKeyTokens * kRowElems, 2, kCommonValue, 0, value_->data(), Stream()), "fill");
    query_.FillNormal(support::DeriveSeed("huge"));
  }

  // A key that every head's query outweighs all others for, and a value of its own.
  void PlantNeedle(std::int64_t token) {
    TestTensor key(type(), kRowElems), value(type(), kRowElems);
    for (std::int64_t i = 0; i < kRowElems; ++i) {
      key.Set(i, 8 * query_.Get(i));
      value.Set(i, kNeedleValue);
    }
    key_->Write(token * kRowElems * ElementBytes(type()), key.bytes());
    value_->Write(token * kRowElems * ElementBytes(type()), value.bytes());
  }

  void ExpectEverywhere(double want) {
    DeviceMemory query(query_.buffer().size_bytes()), output(kRowElems * sizeof(float));
    query.Write(0, query_.bytes());
    const Sequence sequence{.query_begin = 0, .query_tokens = 1, .key_begin = 0, .key_tokens = kKeyTokens, .lse_begin = 0};
    AttentionParams params{.shape = {.data_type = type(),
                                     .output_data_type = DataType::kFloat32,
                                     .num_sequences = 1,
                                     .query_heads = kHeads,
                                     .kv_heads = kHeads,
                                     .head_dim = kDim,
                                     .value_head_dim = kDim},
                           .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(kDim))),
                           .sequences = &sequence,
                           .query = query.data(),
                           .key = key_->data(),
                           .value = value_->data(),
                           .output = output.data()};
    ASSERT_TRUE(RunKernelInPlace(std::get<0>(GetParam()), params));
    const std::vector<std::byte> got = output.Read(0, kRowElems * sizeof(float));
    for (std::int64_t i = 0; i < kRowElems; ++i) {
      ASSERT_NEAR(reference::Load(DataType::kFloat32, got.data(), i), want, 0.01) << "head " << i / kDim;
    }
  }

  std::optional<DeviceMemory> key_, value_;
  TestTensor query_{std::get<1>(GetParam()), kRowElems};
};

INSTANTIATE_TEST_SUITE_P(All, AttentionHugeTest,
                         ::testing::Combine(::testing::ValuesIn(kAlgorithms),
                                            ::testing::Values(DataType::kFloat32, DataType::kBFloat16)),
                         [](const auto& param) {
                           return std::string(Name(std::get<0>(param.param))) + "_" + Name(std::get<1>(param.param));
                         });

TEST_P(AttentionHugeTest, ANeedlePastTwoBillionElementsIsFound) {
  ExpectEverywhere(kCommonValue);
  PlantNeedle(kKeyTokens - 7);
  ExpectEverywhere(kNeedleValue);
}

}  // namespace
}  // namespace ridgeline::kernels::attention
