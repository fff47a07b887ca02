#include "tests/integration/kv_cache_fixture.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::integration {
namespace {

using support::IsOk;

std::vector<float> RandomElements(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> elements(static_cast<std::size_t>(count));
  for (float& element : elements) element = normal(generator);
  return elements;
}

v1::AttendRequest QueryRequest(std::int64_t query_tokens, std::uint64_t query_seed) {
  v1::AttendRequest request;
  *request.mutable_query() =
      InlineTensor({1, query_tokens, kQueryHeads, kHeadDim}, RandomElements(query_tokens * kQueryHeads * kHeadDim, query_seed));
  request.mutable_options()->set_causal(true);
  request.mutable_output()->set_log_sum_exp(true);
  return request;
}

// Two kernels may add in another order. Infinities, of rows that see no key, must be the same.
void ExpectNear(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) continue;
    ASSERT_NEAR(got[i], want[i], 1e-5) << i;
  }
}

}  // namespace

client::Client Connect(const std::string& address, const std::string& name, const std::string& session) {
  client::ClientOptions options;
  options.timeout = absl::Minutes(1);
  options.retry.max_attempts = 1;
  options.name = name;
  options.session = session;
  return *client::Client::Create(address, options);
}

v1::CreateKvCacheRequest CacheRequest(const std::string& id, std::int64_t capacity_pages) {
  v1::CreateKvCacheRequest request;
  request.set_kv_cache_id(id);
  v1::KvCache& cache = *request.mutable_kv_cache();
  cache.set_layers(kLayers);
  cache.set_kv_heads(kKvHeads);
  cache.set_head_dim(kHeadDim);
  cache.set_value_head_dim(kValueHeadDim);
  cache.set_data_type(v1::DATA_TYPE_FLOAT32);
  cache.set_page_tokens(kPageTokens);
  cache.set_capacity_pages(capacity_pages);
  return request;
}

Tokens Tokens::First(std::int64_t length) const {
  return {{key.begin(), key.begin() + length * kKvHeads * kHeadDim},
          {value.begin(), value.begin() + length * kKvHeads * kValueHeadDim}};
}

void Tokens::Append(const Tokens& tokens) {
  key.insert(key.end(), tokens.key.begin(), tokens.key.end());
  value.insert(value.end(), tokens.value.begin(), tokens.value.end());
}

Tokens RandomTokens(std::int64_t length, std::uint64_t seed) {
  return {RandomElements(length * kKvHeads * kHeadDim, seed), RandomElements(length * kKvHeads * kValueHeadDim, ~seed)};
}

v1::Tensor InlineTensor(const std::vector<std::int64_t>& shape, const std::vector<float>& elements) {
  v1::Tensor tensor;
  tensor.set_data_type(v1::DATA_TYPE_FLOAT32);
  for (const std::int64_t extent : shape) tensor.add_shape(extent);
  tensor.set_inline_data(elements.data(), elements.size() * sizeof(float));
  return tensor;
}

std::vector<float> Elements(const v1::Tensor& tensor) {
  const std::string& bytes = tensor.inline_data();
  std::vector<float> elements(bytes.size() / sizeof(float));
  std::memcpy(elements.data(), bytes.data(), bytes.size());
  return elements;
}

v1::AppendKeyValueRequest AppendRequest(const std::string& sequence, std::int32_t layer, const Tokens& tokens) {
  v1::AppendKeyValueRequest request;
  request.add_sequences(sequence);
  request.set_layer(layer);
  *request.mutable_key() = InlineTensor({1, tokens.size(), kKvHeads, kHeadDim}, tokens.key);
  *request.mutable_value() = InlineTensor({1, tokens.size(), kKvHeads, kValueHeadDim}, tokens.value);
  return request;
}

v1::AttendRequest DenseRequest(const Tokens& tokens, std::int64_t query_tokens, std::uint64_t query_seed) {
  v1::AttendRequest request = QueryRequest(query_tokens, query_seed);
  *request.mutable_dense()->mutable_key() = InlineTensor({1, tokens.size(), kKvHeads, kHeadDim}, tokens.key);
  *request.mutable_dense()->mutable_value() = InlineTensor({1, tokens.size(), kKvHeads, kValueHeadDim}, tokens.value);
  return request;
}

v1::AttendRequest PagedRequest(const std::string& sequence, std::int32_t layer, std::int64_t query_tokens,
                               std::uint64_t query_seed) {
  v1::AttendRequest request = QueryRequest(query_tokens, query_seed);
  request.mutable_paged()->add_sequences(sequence);
  request.mutable_paged()->set_layer(layer);
  return request;
}

v1::AttendRequest StepRequest(const std::string& sequence, std::int32_t layer, const Tokens& new_tokens,
                              std::uint64_t query_seed) {
  v1::AttendRequest request = PagedRequest(sequence, layer, new_tokens.size(), query_seed);
  *request.mutable_paged()->mutable_new_key() = InlineTensor({1, new_tokens.size(), kKvHeads, kHeadDim}, new_tokens.key);
  *request.mutable_paged()->mutable_new_value() =
      InlineTensor({1, new_tokens.size(), kKvHeads, kValueHeadDim}, new_tokens.value);
  return request;
}

void ExpectAnswersDense(const client::Client& client, const v1::AttendResponse& paged, const Tokens& tokens,
                        std::int64_t query_tokens, std::uint64_t query_seed) {
  const auto dense = client.Attend(DenseRequest(tokens, query_tokens, query_seed));
  ASSERT_THAT(dense, IsOk());
  ExpectNear(Elements(paged.output()), Elements(dense->output()));
  ExpectNear(Elements(paged.log_sum_exp()), Elements(dense->log_sum_exp()));
}

void ExpectHolds(const client::Client& client, const std::string& sequence, std::int32_t layer, const Tokens& tokens) {
  constexpr std::uint64_t kQuerySeed = 99;
  constexpr std::int64_t kQueryTokens = 3;
  const auto paged = client.Attend(PagedRequest(sequence, layer, kQueryTokens, kQuerySeed));
  ASSERT_THAT(paged, IsOk());
  ExpectAnswersDense(client, *paged, tokens, kQueryTokens, kQuerySeed);
}

}  // namespace ridgeline::integration
