#include "tests/unit/engine/paged_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/check.h"
#include "server/base/notification.h"
#include "tests/reference/attention_reference.h"
#include "tests/support/attention_tolerance.h"

namespace ridgeline::engine {

using kernels::DataType;

kv_cache::CreateCacheRequest CacheRequest(const std::string& id, std::int64_t capacity_pages, kv_cache::EvictionPolicy policy) {
  kv_cache::CreateCacheRequest request;
  request.cache_id = id;
  request.geometry = {.data_type = DataType::kFloat32,
                      .layers = kLayers,
                      .kv_heads = kKvHeads,
                      .head_dim = kHeadDim,
                      .value_head_dim = kValueHeadDim,
                      .page_tokens = kPageTokens,
                      .capacity_pages = capacity_pages};
  request.eviction_policy = policy;
  return request;
}

std::string NameOf(const std::string& cache, const std::string& id) {
  return absl::StrCat("kvCaches/", cache, "/sequences/", id);
}

std::vector<float> RandomRows(Random& random, std::int64_t elements) {
  std::normal_distribution<float> normal;
  std::vector<float> rows(elements);
  for (float& element : rows) element = normal(random);
  return rows;
}

Tensor FloatTensor(std::vector<std::int64_t> shape, std::vector<float> elements) {
  const auto size_bytes = static_cast<std::int64_t>(elements.size() * sizeof(float));
  auto owner = std::make_shared<const std::vector<float>>(std::move(elements));
  InlineData data;
  data.slices = {{owner->data(), size_bytes}};
  data.size_bytes = size_bytes;
  data.owner = std::move(owner);
  return {.data_type = DataType::kFloat32, .shape = std::move(shape), .storage = std::move(data)};
}

// ---- Calls ------------------------------------------------------------------------------------------------------------------

std::int64_t PagedCall::total_tokens() const {
  std::int64_t total = 0;
  for (const std::int64_t each : tokens) total += each;
  return total;
}

namespace {

Tensor RowTensor(const PagedCall& call, std::int64_t heads, std::int64_t head_dim, const std::vector<float>& rows) {
  if (call.ragged) return FloatTensor({call.total_tokens(), heads, head_dim}, rows);
  return FloatTensor({static_cast<std::int64_t>(call.tokens.size()), call.tokens.front(), heads, head_dim}, rows);
}

}  // namespace

AttendRequest PagedCall::Attend() const {
  AttendRequest request;
  request.query = RowTensor(*this, kQueryHeads, kHeadDim, query);
  if (ragged) request.query_lengths = tokens;
  request.paged.emplace();
  request.paged->sequences = sequences;
  request.paged->layer = layer;
  if (appends) {
    request.paged->new_key = RowTensor(*this, kKvHeads, kHeadDim, key);
    request.paged->new_value = RowTensor(*this, kKvHeads, kValueHeadDim, value);
  }
  request.options.causal = causal;
  request.output.log_sum_exp = log_sum_exp;
  return request;
}

AppendKeyValueRequest PagedCall::Append() const {
  AppendKeyValueRequest request;
  request.sequences = sequences;
  request.layer = layer;
  request.key = RowTensor(*this, kKvHeads, kHeadDim, key);
  request.value = RowTensor(*this, kKvHeads, kValueHeadDim, value);
  if (ragged) request.lengths = tokens;
  return request;
}

PagedCall MakeCall(Random& random, std::vector<std::string> sequences, std::int64_t layer, std::vector<std::int64_t> tokens,
                   bool appends) {
  PagedCall call;
  call.sequences = std::move(sequences);
  call.layer = layer;
  call.tokens = std::move(tokens);
  call.appends = appends;
  const bool is_even = std::adjacent_find(call.tokens.begin(), call.tokens.end(), std::not_equal_to<>()) == call.tokens.end();
  call.ragged = !is_even || random() % 2 == 0;
  call.causal = random() % 2 == 0;
  call.log_sum_exp = random() % 2 == 0;
  call.query = RandomRows(random, call.total_tokens() * kQueryRowElems);
  if (appends) {
    call.key = RandomRows(random, call.total_tokens() * kKeyRowElems);
    call.value = RandomRows(random, call.total_tokens() * kValueRowElems);
  }
  return call;
}

// ---- The model --------------------------------------------------------------------------------------------------------------

std::vector<std::int64_t> PagedModel::Sequence::lengths() const {
  std::vector<std::int64_t> lengths;
  for (const Layer& layer : layers) lengths.push_back(layer.tokens());
  return lengths;
}

void PagedModel::Append(const PagedCall& call) {
  std::int64_t row = 0;
  for (std::size_t i = 0; i < call.sequences.size(); ++i) {
    Sequence& sequence = sequences_.at(call.sequences[i]);
    Layer& layer = sequence.layers[call.layer];
    const std::int64_t begin = layer.tokens(), end = begin + call.tokens[i];
    layer.keys.insert(layer.keys.end(), call.key.begin() + row * kKeyRowElems,
                      call.key.begin() + (row + call.tokens[i]) * kKeyRowElems);
    layer.values.insert(layer.values.end(), call.value.begin() + row * kValueRowElems,
                        call.value.begin() + (row + call.tokens[i]) * kValueRowElems);
    row += call.tokens[i];
    if (begin == end) continue;
    const auto num_pages = static_cast<std::size_t>((end + kPageTokens - 1) / kPageTokens);
    for (auto page = static_cast<std::size_t>(begin / kPageTokens); page < num_pages; ++page) {
      if (page == sequence.pages.size()) sequence.pages.emplace_back();
      std::shared_ptr<int>& place = sequence.pages[page];
      if (place == nullptr || place.use_count() > 1) place = std::make_shared<int>();
    }
  }
}

void PagedModel::Truncate(const std::string& name, std::int64_t length) {
  Sequence& sequence = sequences_.at(name);
  std::int64_t longest = 0;
  for (Layer& layer : sequence.layers) {
    const std::int64_t kept = std::min(length, layer.tokens());
    layer.keys.resize(kept * kKeyRowElems);
    layer.values.resize(kept * kValueRowElems);
    longest = std::max(longest, kept);
  }
  sequence.pages.resize((longest + kPageTokens - 1) / kPageTokens);
}

std::int64_t PagedModel::used_pages() const {
  std::set<const int*> pages;
  for (const auto& [name, sequence] : sequences_) {
    for (const auto& page : sequence.pages) pages.insert(page.get());
  }
  return static_cast<std::int64_t>(pages.size());
}

namespace {

::testing::AssertionResult Compare(const char* what, const OutputTensor& got, const std::vector<double>& want,
                                   const std::vector<double>& bound) {
  const std::int64_t size_bytes = got.data == nullptr ? 0 : got.data->size_bytes();
  if (size_bytes != static_cast<std::int64_t>(want.size() * sizeof(float))) {
    return ::testing::AssertionFailure() << what << " has " << size_bytes << " bytes for " << want.size() << " elements";
  }
  const auto* elements = want.empty() ? nullptr : static_cast<const float*>(got.data->data());
  for (std::size_t i = 0; i < want.size(); ++i) {
    const bool is_right = std::isinf(want[i]) ? elements[i] == want[i] : std::abs(elements[i] - want[i]) <= bound[i];
    if (!is_right) {
      return ::testing::AssertionFailure() << what << " element " << i << ": got " << elements[i] << ", want " << want[i]
                                           << " within " << bound[i];
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace

::testing::AssertionResult PagedModel::IsRight(const PagedCall& call, const AttendResult& result) const {
  std::vector<kernels::attention::Sequence> sequences;
  std::vector<float> keys, values;
  std::int64_t query_begin = 0;
  for (std::size_t i = 0; i < call.sequences.size(); ++i) {
    const Layer& layer = sequence(call.sequences[i]).layers[call.layer];
    sequences.push_back({.query_begin = query_begin,
                         .query_tokens = call.tokens[i],
                         .key_begin = static_cast<std::int64_t>(keys.size()) / kKeyRowElems,
                         .key_tokens = layer.tokens(),
                         .lse_begin = call.ragged ? query_begin : query_begin * kQueryHeads});
    keys.insert(keys.end(), layer.keys.begin(), layer.keys.end());
    values.insert(values.end(), layer.values.begin(), layer.values.end());
    query_begin += call.tokens[i];
  }
  float asks_for_lse = 0;
  kernels::attention::AttentionParams params = {};
  params.shape = {.data_type = DataType::kFloat32,
                  .output_data_type = DataType::kFloat32,
                  .num_sequences = static_cast<std::int64_t>(sequences.size()),
                  .query_heads = kQueryHeads,
                  .kv_heads = kKvHeads,
                  .head_dim = kHeadDim,
                  .value_head_dim = kValueHeadDim};
  if (call.causal) params.shape.window_right = 0;
  params.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(kHeadDim)));
  params.sequences = sequences.data();
  params.query = call.query.data();
  params.key = keys.data();
  params.value = values.data();
  if (call.log_sum_exp) params.log_sum_exp = &asks_for_lse;
  params.lse_head_stride_elems = call.ragged ? call.total_tokens() : call.tokens.front();
  const reference::AttentionResult want = reference::Attend(params);
  const support::AttentionBound bound = support::BoundErrors(params, want);
  if (!result.output.has_value() || result.log_sum_exp.has_value() != call.log_sum_exp) {
    return ::testing::AssertionFailure() << "a tensor is missing, or there is one too many";
  }
  const ::testing::AssertionResult output_is_right = Compare("output", *result.output, want.output, bound.output);
  if (!output_is_right || !call.log_sum_exp) return output_is_right;
  return Compare("log_sum_exp", *result.log_sum_exp, want.log_sum_exp, bound.log_sum_exp);
}

::testing::AssertionResult ExportsAs(Engine& engine, const std::string& name, const PagedModel::Sequence& want) {
  auto reader = engine.ExportSequence({}, name);
  if (!reader.ok()) return ::testing::AssertionFailure() << reader.status();
  if ((*reader)->header().lengths != want.lengths()) return ::testing::AssertionFailure() << "lengths differ";
  std::vector<PagedModel::Layer> got(kLayers);
  while (true) {
    absl::StatusOr<std::optional<OutgoingChunk>> chunk;
    base::Notification arrived;
    (*reader)->Next({.origin = {.request_id = "test"}}, [&](absl::StatusOr<std::optional<OutgoingChunk>> next) {
      chunk = std::move(next);
      arrived.Notify();
    });
    RIDGELINE_CHECK(arrived.WaitWithTimeout(absl::Minutes(1)));
    if (!chunk.ok()) return ::testing::AssertionFailure() << chunk.status();
    if (!chunk->has_value()) break;
    PagedModel::Layer& layer = got[(*chunk)->layer];
    if ((*chunk)->token_begin != layer.tokens()) return ::testing::AssertionFailure() << "a gap";
    const auto take = [](const OutputTensor& tensor, std::vector<float>& rows) {
      const auto* elements = static_cast<const float*>(tensor.data->data());
      rows.insert(rows.end(), elements, elements + tensor.data->size_bytes() / sizeof(float));
    };
    take((*chunk)->key, layer.keys);
    take((*chunk)->value, layer.values);
  }
  if (got != want.layers) return ::testing::AssertionFailure() << "rows differ";
  return ::testing::AssertionSuccess();
}

}  // namespace ridgeline::engine
