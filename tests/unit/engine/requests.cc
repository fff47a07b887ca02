#include "tests/unit/engine/requests.h"

#include <atomic>
#include <utility>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "server/base/check.h"
#include "server/base/notification.h"
#include "server/device/cpu_device.h"

namespace ridgeline::engine {

using kernels::DataType;

Tensor RandomTensor(std::vector<std::int64_t> shape, std::uint64_t seed, DataType type) {
  return {.data_type = type, .shape = std::move(shape), .storage = RandomFill{.seed = seed}};
}

Tensor InlineTensor(std::vector<std::int64_t> shape, DataType type, std::span<const std::byte> bytes) {
  InlineData data;
  const auto size = static_cast<std::int64_t>(bytes.size());
  // Two pieces, as a message may come.
  data.slices = {{bytes.data(), size / 3}, {bytes.data() + size / 3, size - size / 3}};
  data.size_bytes = size;
  return {.data_type = type, .shape = std::move(shape), .storage = std::move(data)};
}

AttendRequest SmallRequest() {
  AttendRequest request;
  request.query = RandomTensor({2, 3, 4, 8}, 1);
  request.dense.emplace();
  request.dense->key = RandomTensor({2, 5, 2, 8}, 2);
  request.dense->value = RandomTensor({2, 5, 2, 8}, 3);
  return request;
}

AttendRequest RandomRequest(std::int64_t tokens, std::int64_t heads, kernels::attention::Algorithm algorithm) {
  AttendRequest request;
  request.query = RandomTensor({1, tokens, heads, 64}, 1);
  request.dense.emplace();
  request.dense->key = RandomTensor({1, tokens, heads, 64}, 2);
  request.dense->value = RandomTensor({1, tokens, heads, 64}, 3);
  request.options.algorithm = algorithm;
  return request;
}

AttendRequest RequestOf(support::AttentionCase& attention_case) {
  const support::AttentionProblem& problem = attention_case.problem();
  const support::AttentionOptions& options = attention_case.options();
  const auto batch = static_cast<std::int64_t>(problem.query_tokens.size());
  const bool ragged = problem.ragged();
  const auto shape_of = [&](support::TestTensor& tensor, std::int64_t tokens, std::int64_t heads, std::int64_t head_dim) {
    const std::vector<std::int64_t> shape =
        ragged ? std::vector<std::int64_t>{tensor.elements() / (heads * head_dim), heads, head_dim}
               : std::vector<std::int64_t>{batch, tokens, heads, head_dim};
    return InlineTensor(shape, tensor.type(), tensor.bytes());
  };
  const std::int64_t query_tokens = batch == 0 ? 0 : problem.query_tokens[0];
  const std::int64_t key_tokens = problem.dense_key_tokens.value_or(0);

  AttendRequest request;
  request.query = shape_of(attention_case.query(), query_tokens, problem.query_heads, problem.head_dim);
  request.dense.emplace();
  request.dense->key = shape_of(attention_case.key(), key_tokens, problem.kv_heads, problem.head_dim);
  request.dense->value = shape_of(attention_case.value(), key_tokens, problem.kv_heads, problem.value_head_dim);
  request.dense->lengths = problem.key_tokens;
  if (ragged) request.query_lengths = problem.query_tokens;
  request.options.scale = options.scale;
  request.options.causal = options.causal;
  request.options.window_left = options.window_left;
  request.options.window_right = options.window_right;
  request.options.logit_soft_cap = options.logit_soft_cap;
  if (options.alibi) {
    request.options.alibi_slopes =
        InlineTensor({problem.query_heads}, DataType::kFloat32, attention_case.alibi_slopes().bytes());
  }
  if (options.sink != support::Sink::kNone) {
    request.options.sink_logits = InlineTensor({problem.query_heads}, DataType::kFloat32, attention_case.sink_logits().bytes());
  }
  if (options.bias != support::Bias::kNone) {
    request.options.bias = InlineTensor(attention_case.bias_shape(), DataType::kFloat32, attention_case.bias().bytes());
  }
  request.output.log_sum_exp = options.log_sum_exp;
  request.output.data_type = options.output_data_type;
  return request;
}

struct Answer::State {
  base::Notification arrived;
  std::atomic<int> count{0};
  absl::StatusOr<AttendResult> result;
};

Answer::Answer() : state_(std::make_shared<State>()) {}

AttendDone Answer::Callback() {
  return [state = state_](absl::StatusOr<AttendResult> result) {
    RIDGELINE_CHECK(state->count.fetch_add(1) == 0);
    state->result = std::move(result);
    state->arrived.Notify();
  };
}

bool Answer::arrived() const { return state_->arrived.HasBeenNotified(); }

const absl::StatusOr<AttendResult>& Answer::Wait() const {
  RIDGELINE_CHECK(state_->arrived.WaitWithTimeout(absl::Minutes(1)));
  return state_->result;
}

Roofline MadeUpRoofline() {
  Roofline roofline;
  roofline.device = "made up";
  roofline.bytes_per_second = 100e9;
  roofline.compute_roofs = {{DataType::kFloat32, 1e12}, {DataType::kFloat16, 2e12}, {DataType::kBFloat16, 2e12}};
  return roofline;
}

std::unique_ptr<device::Device> MakeDevice(int num_lanes) {
  auto device =
      device::CreateCpuDevice({.num_lanes = num_lanes, .num_threads = 2, .memory_limit_bytes = std::int64_t{256} << 20});
  RIDGELINE_CHECK(device.ok());
  return *std::move(device);
}

bool AllMemoryReturns(const device::Device& device) {
  for (int i = 0; i < 1000; ++i) {
    if (device.memory_stats().allocation_count == 0) return true;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return false;
}

}  // namespace ridgeline::engine
