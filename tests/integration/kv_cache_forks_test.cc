// Forks of one long sequence in one request: on a GPU their common pages are read once, in a pass of their own. Each gets the
// answer that it gets alone.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ridgeline/v1/attention.pb.h"
#include "ridgeline/v1/kv_cache.pb.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/support/daemon.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::integration {
namespace {

using client::Client;
using support::Daemon;
using support::IsOk;

// As the kernels for few queries take it, and large enough that a pass for the prefix pays.
constexpr std::int64_t kForks = 20, kPrefixTokens = 2050, kHeads = 8, kDim = 128;
constexpr char kCache[] = "kvCaches/forks";
constexpr char kParent[] = "kvCaches/forks/sequences/parent";

std::string ForkName(std::int64_t i) { return "kvCaches/forks/sequences/fork" + std::to_string(i); }

v1::CreateKvCacheRequest LargeCache() {
  v1::CreateKvCacheRequest request = CacheRequest("forks", /*capacity_pages=*/256);
  v1::KvCache& cache = *request.mutable_kv_cache();
  cache.set_kv_heads(kHeads);
  cache.set_head_dim(kDim);
  cache.set_value_head_dim(kDim);
  cache.set_page_tokens(16);
  cache.set_data_type(v1::DATA_TYPE_BFLOAT16);
  return request;
}

// bfloat16, made by the device.
v1::Tensor RandomTensor(std::int64_t tokens, std::uint64_t seed) {
  v1::Tensor tensor;
  tensor.set_data_type(v1::DATA_TYPE_BFLOAT16);
  for (const std::int64_t extent : {std::int64_t{1}, tokens, kHeads, kDim}) tensor.add_shape(extent);
  tensor.mutable_random()->set_seed(seed);
  return tensor;
}

void Append(const Client& client, const std::string& sequence, std::int64_t tokens, std::uint64_t seed) {
  v1::AppendKeyValueRequest request;
  request.add_sequences(sequence);
  *request.mutable_key() = RandomTensor(tokens, seed);
  *request.mutable_value() = RandomTensor(tokens, seed + 1000);
  ASSERT_THAT(client.AppendKeyValue(request), IsOk());
}

// One query for each of forks [begin, end), of 0.5, -0.5, 2 and -2 in bfloat16.
v1::AttendRequest Step(std::int64_t begin, std::int64_t end) {
  v1::AttendRequest request;
  request.mutable_output()->set_data_type(v1::DATA_TYPE_FLOAT32);
  request.mutable_output()->set_log_sum_exp(true);
  v1::Tensor& query = *request.mutable_query();
  query.set_data_type(v1::DATA_TYPE_BFLOAT16);
  for (const std::int64_t extent : {end - begin, std::int64_t{1}, kHeads, kDim}) query.add_shape(extent);
  for (std::int64_t i = begin; i < end; ++i) {
    request.mutable_paged()->add_sequences(ForkName(i));
    for (std::int64_t j = 0; j < kHeads * kDim; ++j) {
      query.mutable_inline_data()->append({'\0', "\x3f\xbf\x40\xc0"[(i + 1) * j % 7 % 4]});
    }
  }
  return request;
}

// The i-th row of `all` is `one`.
void ExpectRow(const std::vector<float>& all, const std::vector<float>& one, std::int64_t i, float tolerance) {
  ASSERT_EQ(all.size(), one.size() * kForks);
  for (std::size_t j = 0; j < one.size(); ++j) ASSERT_NEAR(all[i * one.size() + j], one[j], tolerance) << i << " " << j;
}

TEST(KvCacheForksTest, TogetherTheyGetTheAnswersOfEachAlone) {
  const Daemon daemon;
  const Client client = Connect(daemon.unix_address());
  ASSERT_THAT(client.CreateKvCache(LargeCache()), IsOk());
  ASSERT_THAT(client.CreateSequence(kCache, "parent"), IsOk());
  Append(client, kParent, kPrefixTokens, 1);
  for (std::int64_t i = 0; i < kForks; ++i) {
    ASSERT_THAT(client.ForkSequence(kParent, "fork" + std::to_string(i)), IsOk());
    Append(client, ForkName(i), 1 + i % 5, 10 + i);
  }
  const auto together = client.Attend(Step(0, kForks));
  ASSERT_THAT(together, IsOk());
  const bool has_gpu = client.GetDevice()->type() == v1::DEVICE_TYPE_CUDA;
  EXPECT_EQ(together->report().kernel().find("cascade") != std::string::npos, has_gpu) << together->report().kernel();
  std::int64_t bytes_alone = 0;
  for (std::int64_t i = 0; i < kForks; ++i) {
    const auto alone = client.Attend(Step(i, i + 1));
    ASSERT_THAT(alone, IsOk());
    bytes_alone += alone->report().bytes();
    ExpectRow(Elements(together->output()), Elements(alone->output()), i, 0.01f);
    ExpectRow(Elements(together->log_sum_exp()), Elements(alone->log_sum_exp()), i, 0.001f);
  }
  // What they have in common is read once, and the report says so.
  if (has_gpu) {
    EXPECT_LT(together->report().bytes(), bytes_alone);
  } else {
    EXPECT_EQ(together->report().bytes(), bytes_alone);
  }
}

}  // namespace
}  // namespace ridgeline::integration
