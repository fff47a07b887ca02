#include "tests/resilience/known_answer.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/microbench/microbench.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/support/thread_executor.h"

namespace ridgeline::resilience {
namespace {

using kernels::DataType;

std::vector<float> ElementsOf(const v1::Tensor& tensor) {
  if (!tensor.has_random()) return integration::Elements(tensor);
  std::int64_t count = 1;
  for (const std::int64_t extent : tensor.shape()) count *= extent;
  std::vector<float> elements(static_cast<std::size_t>(count));
  support::ThreadExecutor executor(/*num_slots=*/1);
  kernels::microbench::FillNormalOnCpu(DataType::kFloat32, count, tensor.random().seed(), /*mean=*/0, /*standard_deviation=*/1,
                                       elements.data(), executor);
  return elements;
}

}  // namespace

KnownAnswer::KnownAnswer(const v1::AttendRequest& request) {
  const v1::Tensor& query = request.query();
  const v1::Tensor& key = request.dense().key();
  const v1::Tensor& value = request.dense().value();
  const std::vector<float> queries = ElementsOf(query);  // [1, Sq, Hq, D]
  const std::vector<float> keys = ElementsOf(key);       // [1, Sk, Hkv, D]
  const std::vector<float> values = ElementsOf(value);   // [1, Sk, Hkv, Dv]
  const kernels::attention::Sequence sequence = {
      .query_begin = 0, .query_tokens = query.shape(1), .key_begin = 0, .key_tokens = key.shape(1), .lse_begin = 0};
  kernels::attention::AttentionParams params = {};
  params.shape = {.data_type = DataType::kFloat32,
                  .output_data_type = DataType::kFloat32,
                  .num_sequences = 1,
                  .query_heads = query.shape(2),
                  .kv_heads = key.shape(2),
                  .head_dim = query.shape(3),
                  .value_head_dim = value.shape(3)};
  if (request.options().causal()) params.shape.window_right = 0;
  params.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(query.shape(3))));
  params.sequences = &sequence;
  params.query = queries.data();
  params.key = keys.data();
  params.value = values.data();
  want_ = reference::Attend(params);
  bound_ = support::BoundErrors(params, want_);
}

bool KnownAnswer::IsRight(const v1::Tensor& output) const {
  const std::vector<float> got = integration::Elements(output);
  if (got.size() != want_.output.size()) return false;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!(std::abs(got[i] - want_.output[i]) <= bound_.output[i])) return false;
  }
  return true;
}

}  // namespace ridgeline::resilience
