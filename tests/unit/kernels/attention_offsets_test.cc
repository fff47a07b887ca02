// Arrays larger than 32 bits can count: element and byte offsets are 64-bit everywhere.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "tests/support/attention_case.h"
#include "tests/support/attention_shapes.h"
#include "tests/support/paged_key_value.h"
#include "tests/support/test_tensor.h"
#include "tests/unit/kernels/attention_runner.h"

namespace ridgeline::kernels::attention {
namespace {

using support::AttentionCase;
using support::AttentionOptions;
using support::TestTensor;

constexpr std::int64_t kFarElems = std::int64_t{1} << 32;

// The two halves of a tensor, one for each of two sequences, the second at element kFarElems or the next multiple of
// `granule_elems`, in memory of the device.
class FarApart {
 public:
  FarApart(const TestTensor& halves, std::int64_t granule_elems)
      : element_bytes_(ElementBytes(halves.type())),
        half_bytes_(halves.elements() / 2 * element_bytes_),
        second_elem_((kFarElems / granule_elems + 1) * granule_elems),
        memory_(second_elem_ * element_bytes_ + half_bytes_) {
    if (!allocated()) return;
    memory_.Write(0, halves.bytes().first(half_bytes_));
    memory_.Write(second_elem_ * element_bytes_, halves.bytes().subspan(half_bytes_));
  }

  bool allocated() const { return memory_.allocated(); }
  void* data() const { return memory_.data(); }
  float* floats() const { return static_cast<float*>(data()); }
  std::int64_t second_elem() const { return second_elem_; }

  std::vector<std::byte> Halves() const {
    std::vector<std::byte> halves = memory_.Read(0, half_bytes_);
    const std::vector<std::byte> second = memory_.Read(second_elem_ * element_bytes_, half_bytes_);
    halves.insert(halves.end(), second.begin(), second.end());
    return halves;
  }

 private:
  const std::int64_t element_bytes_;
  const std::int64_t half_bytes_;
  const std::int64_t second_elem_;
  DeviceMemory memory_;
};

class AttentionOffsetsTest : public ::testing::TestWithParam<std::tuple<Algorithm, DataType>> {};

INSTANTIATE_TEST_SUITE_P(All, AttentionOffsetsTest,
                         ::testing::Combine(::testing::ValuesIn(kAlgorithms), ::testing::ValuesIn(support::kAttentionTypes)),
                         [](const auto& param) {
                           return std::string(Name(std::get<0>(param.param))) + "_" + Name(std::get<1>(param.param));
                         });

// The second of two sequences lies past element 2^32 of every array: the same answer as side by side, byte for byte.
TEST_P(AttentionOffsetsTest, PastFourBillionElements) {
  const auto [algorithm, type] = GetParam();
  constexpr std::int64_t kTokens = 70, kHeads = 4, kDim = 64, kTokenElems = kHeads * kDim;
  AttentionOptions options;
  options.bias = support::Bias::kFull;
  AttentionCase near(support::DenseProblem(2, kTokens, kTokens, kHeads, kHeads, kDim, kDim), options, type, /*seed=*/1);
  ASSERT_TRUE(IsRight(algorithm, near));
  const std::vector<std::byte> want_output(near.output().bytes().begin(), near.output().bytes().end());
  const std::vector<std::byte> want_lse(near.log_sum_exp().bytes().begin(), near.log_sum_exp().bytes().end());

  AttentionParams params = near.params();  // poisons what the near run wrote, and so its copies
  const FarApart query(near.query(), kTokenElems), key(near.key(), kTokenElems), value(near.value(), kTokenElems);
  const FarApart output(near.output(), kTokenElems), lse(near.log_sum_exp(), 1), bias(near.bias(), 1);
  for (const FarApart* array : {&query, &key, &value, &output, &lse, &bias}) {
    if (!array->allocated()) GTEST_SKIP() << "this device does not hand out that much memory";
  }
  std::vector<Sequence> sequences = near.sequences();
  sequences[1].query_begin = query.second_elem() / kTokenElems;
  sequences[1].key_begin = key.second_elem() / kTokenElems;
  sequences[1].lse_begin = lse.second_elem();
  params.sequences = sequences.data();
  params.query = query.data();
  params.key = key.data();
  params.value = value.data();
  params.output = output.data();
  params.log_sum_exp = lse.floats();
  params.bias = bias.floats();
  params.bias_sequence_stride_elems = bias.second_elem();
  ASSERT_TRUE(RunKernelInPlace(algorithm, params));
  EXPECT_TRUE(output.Halves() == want_output);
  EXPECT_TRUE(lse.Halves() == want_lse);
}

// A tensor's bytes in memory of the device; pages, `spread` times as far from page 0.
std::unique_ptr<DeviceMemory> OnDevice(const TestTensor& tensor, std::int64_t page_bytes, std::int64_t spread) {
  const std::int64_t size_bytes = tensor.buffer().size_bytes();
  auto memory = std::make_unique<DeviceMemory>(size_bytes * spread);
  for (std::int64_t begin = 0; begin < size_bytes && memory->allocated(); begin += page_bytes) {
    memory->Write(begin * spread, tensor.bytes().subspan(begin, std::min(page_bytes, size_bytes - begin)));
  }
  return memory;
}

// Pages past element 2^32 of either plane: the same answer as from pages side by side, byte for byte.
TEST_P(AttentionOffsetsTest, PagesPastFourBillionElements) {
  const auto [algorithm, type] = GetParam();
  constexpr std::int64_t kPageTokens = 16, kHeads = 2, kDim = 64, kPageElems = kPageTokens * kHeads * kDim;
  const std::int64_t page_bytes = kPageElems * ElementBytes(type);
  AttentionCase near(support::Paged(support::RaggedProblem({1, 3}, {70, 33}, 8, kHeads, kDim), kPageTokens), AttentionOptions(),
                     type, /*seed=*/1);
  if (const std::string why_not = WhyNot(algorithm, near.params()); !why_not.empty()) GTEST_SKIP() << why_not;
  ASSERT_TRUE(IsRight(algorithm, near));
  const std::vector<std::byte> want(near.output().bytes().begin(), near.output().bytes().end());

  AttentionParams params = near.params();
  const support::PagedKeyValue& paged = near.paged();
  const std::int64_t num_pages = paged.key().buffer().size_bytes() / page_bytes;
  const std::int64_t spread = kFarElems / kPageElems / (num_pages / 2) + 1;  // half of the pages end up far away
  TestTensor table = TestTensor(DataType::kInt32, paged.block_table().elements());
  for (std::int64_t i = 0; i < table.elements(); ++i) {
    reinterpret_cast<std::int32_t*>(table.bytes().data())[i] = static_cast<std::int32_t>(params.block_table[i] * spread);
  }
  const auto key = OnDevice(paged.key(), page_bytes, spread), value = OnDevice(paged.value(), page_bytes, spread);
  if (!key->allocated() || !value->allocated()) GTEST_SKIP() << "this device does not hand out that much memory";
  const auto query = OnDevice(near.query(), page_bytes, 1), output = OnDevice(near.output(), page_bytes, 1);
  const auto entries = OnDevice(table, page_bytes, 1);
  params.key = key->data();
  params.value = value->data();
  params.query = query->data();
  params.output = output->data();
  params.block_table = static_cast<const std::int32_t*>(entries->data());
  params.log_sum_exp = nullptr;
  ASSERT_TRUE(RunKernelInPlace(algorithm, params));
  EXPECT_TRUE(output->Read(0, near.output().buffer().size_bytes()) == want);
}

}  // namespace
}  // namespace ridgeline::kernels::attention
