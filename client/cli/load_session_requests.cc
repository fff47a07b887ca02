#include "client/cli/load_session_requests.h"

#include <cstring>
#include <random>
#include <utility>

#include "client/cpp/array.h"
#include "client/cpp/tensor_io.h"

namespace ridgeline::cli {
namespace {

// Normally distributed elements, inline: [1, 1, heads, head_dim].
v1::Tensor InlineToken(v1::DataType type, std::int64_t heads, std::int64_t head_dim, std::mt19937_64& random) {
  client::Array array{client::ElementType::kFloat32, {1, 1, heads, head_dim}, {}};
  std::normal_distribution<float> normal;
  array.bytes.resize(heads * head_dim * sizeof(float));
  for (std::int64_t i = 0; i < heads * head_dim; ++i) {
    const float element = normal(random);
    std::memcpy(array.bytes.data() + i * sizeof(float), &element, sizeof(float));
  }
  // Every type that --dtype allows has an element type.
  return *client::ToTensor(client::ConvertTo(std::move(array), *client::ElementTypeOf(type)));
}

}  // namespace

SessionRequests::SessionRequests(const SessionGeometry& geometry) : geometry_(geometry) {
  const ProblemShape& shape = geometry_.shape;
  std::mt19937_64 random(geometry_.seed);
  *decode_.mutable_query() = InlineToken(geometry_.type, shape.query_heads, shape.head_dim, random);
  *decode_.mutable_paged()->mutable_new_key() = InlineToken(geometry_.type, shape.kv_heads, shape.head_dim, random);
  *decode_.mutable_paged()->mutable_new_value() = InlineToken(geometry_.type, shape.kv_heads, shape.value_head_dim, random);
  *decode_.mutable_options() = geometry_.options;
  decode_.mutable_output()->set_discard(!geometry_.inline_output);
}

v1::AppendKeyValueRequest SessionRequests::Fill(const std::string& sequence, int layer, std::int64_t tokens,
                                                std::uint64_t seed) const {
  const ProblemShape& shape = geometry_.shape;
  v1::AppendKeyValueRequest request;
  request.add_sequences(sequence);
  request.set_layer(layer);
  *request.mutable_key() = client::RandomTensor(geometry_.type, {1, tokens, shape.kv_heads, shape.head_dim}, seed);
  *request.mutable_value() = client::RandomTensor(geometry_.type, {1, tokens, shape.kv_heads, shape.value_head_dim}, seed + 1);
  return request;
}

client::EncodedRequest SessionRequests::Prefill(const std::string& sequence, int layer, std::int64_t tokens) const {
  const ProblemShape& shape = geometry_.shape;
  v1::AttendRequest request;
  *request.mutable_query() =
      client::RandomTensor(geometry_.type, {1, tokens, shape.query_heads, shape.head_dim}, geometry_.seed);
  v1::PagedKeyValue& paged = *request.mutable_paged();
  paged.add_sequences(sequence);
  paged.set_layer(layer);
  *paged.mutable_new_key() =
      client::RandomTensor(geometry_.type, {1, tokens, shape.kv_heads, shape.head_dim}, geometry_.seed + 1);
  *paged.mutable_new_value() =
      client::RandomTensor(geometry_.type, {1, tokens, shape.kv_heads, shape.value_head_dim}, geometry_.seed + 2);
  *request.mutable_options() = geometry_.options;
  request.mutable_options()->set_causal(true);
  request.mutable_output()->set_discard(!geometry_.inline_output);
  return client::EncodedRequest(request);
}

std::vector<client::EncodedRequest> SessionRequests::DecodeSteps(const std::string& sequence) const {
  v1::AttendRequest request = decode_;
  request.mutable_paged()->add_sequences(sequence);
  std::vector<client::EncodedRequest> steps;
  for (int layer = 0; layer < geometry_.layers; ++layer) {
    request.mutable_paged()->set_layer(layer);
    steps.emplace_back(request);
  }
  return steps;
}

}  // namespace ridgeline::cli
