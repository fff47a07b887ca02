// Plans against what the papers say, and against what the daemon's own allocator and planner measure.
#include "server/engine/memory_plan/memory_plan.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "server/device/cpu_device.h"
#include "server/engine/kv_cache/geometry.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::engine {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::Contains;
using ::testing::Not;

constexpr std::int64_t kPlenty = std::int64_t{1} << 60;

MemoryPlanRequest Llama8B() {
  MemoryPlanRequest request;
  request.model = {.layers = 32,
                   .hidden_size = 4096,
                   .query_heads = 32,
                   .kv_heads = 8,
                   .intermediate_size = 14336,
                   .vocabulary_size = 128256,
                   .gated = true};
  request.memory_bytes = kPlenty;
  return request;
}

// A transformer of the paper's: multi-head attention, a feed-forward network of 4 h with GELU, dropout.
MemoryPlanRequest Korthikanti(std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  MemoryPlanRequest request;
  request.model = {.layers = layers, .hidden_size = hidden, .query_heads = heads};
  request.optimizer = Optimizer::kAdam;
  request.dropout = true;
  request.standard_attention = true;
  request.memory_bytes = kPlenty;
  return request;
}

MemoryPlan Plan(const MemoryPlanRequest& request) {
  absl::StatusOr<MemoryPlan> plan = PlanMemory(request);
  EXPECT_OK(plan);
  return plan.ok() ? *std::move(plan) : MemoryPlan();
}

std::int64_t BytesOf(const MemoryPlan& plan, const std::string& name) {
  std::int64_t bytes = 0;
  for (const MemoryTerm& term : plan.terms) {
    if (term.name.starts_with(name)) bytes += term.bytes;
  }
  return bytes;
}

std::int64_t StateBytes(const MemoryPlan& plan) { return plan.total_bytes - BytesOf(plan, "activations"); }

// ---- The model's state.

TEST(MemoryPlanTest, MixedPrecisionAdamTakes16BytesAParameter) {
  MemoryPlanRequest request = Llama8B();
  request.optimizer = Optimizer::kAdam;
  request.model.parameters = 1'000'000;
  EXPECT_EQ(StateBytes(Plan(request)), 16'000'000);
}

TEST(MemoryPlanTest, SevenBillionParametersTake112Gigabytes) {
  MemoryPlanRequest request = Llama8B();
  request.optimizer = Optimizer::kAdam;
  request.model.parameters = 7'000'000'000;
  const MemoryPlan plan = Plan(request);
  EXPECT_EQ(StateBytes(plan), 112'000'000'000);
  EXPECT_EQ(BytesOf(plan, "weights"), 14'000'000'000);
  EXPECT_EQ(BytesOf(plan, "gradients"), 14'000'000'000);
  EXPECT_EQ(BytesOf(plan, "master_weights"), 28'000'000'000);
  EXPECT_EQ(BytesOf(plan, "optimizer_state"), 56'000'000'000);
}

// ZeRO's figure 1: 7.5 billion parameters on 64 devices.
TEST(MemoryPlanTest, ZeroStagesAsInThePaper) {
  MemoryPlanRequest request = Llama8B();
  request.optimizer = Optimizer::kAdam;
  request.model.parameters = 7'500'000'000;
  request.sharding.data_parallel = 64;
  const double gigabytes[] = {120, 31.4, 16.6, 1.9};
  for (int stage = 0; stage <= 3; ++stage) {
    request.sharding.zero_stage = stage;
    EXPECT_NEAR(static_cast<double>(StateBytes(Plan(request))) / 1e9, gigabytes[stage], 0.05) << stage;
  }
}

TEST(MemoryPlanTest, OtherOptimisersTakeLess) {
  MemoryPlanRequest request = Llama8B();
  request.model.parameters = 1'000'000;
  const std::pair<Optimizer, std::int64_t> cases[] = {
      {Optimizer::kAdam8Bit, 10}, {Optimizer::kSgdMomentum, 12}, {Optimizer::kSgd, 8}};
  for (const auto& [optimizer, bytes] : cases) {
    request.optimizer = optimizer;
    EXPECT_EQ(StateBytes(Plan(request)), bytes * 1'000'000);
  }
  request.optimizer = Optimizer::kAdam;
  request.data_type = kernels::DataType::kFloat32;
  EXPECT_EQ(StateBytes(Plan(request)), 16'000'000) << "float32 weights are their own master copy";
}

TEST(MemoryPlanTest, ParametersOfKnownModels) {
  EXPECT_EQ(Plan(Llama8B()).parameters, 8'030'261'248) << "Llama 3 8B";
  MemoryPlanRequest mixtral = Llama8B();
  mixtral.model.vocabulary_size = 32000;
  mixtral.model.experts = 8;
  mixtral.model.experts_per_token = 2;
  EXPECT_EQ(Plan(mixtral).parameters, 46'702'792'704) << "Mixtral 8x7B";
  MemoryPlanRequest gpt2;
  gpt2.model = {.layers = 48, .hidden_size = 1600, .query_heads = 25, .vocabulary_size = 50257, .tied_embeddings = true};
  gpt2.memory_bytes = kPlenty;
  EXPECT_NEAR(static_cast<double>(Plan(gpt2).parameters), 1.558e9, 0.004e9)
      << "GPT-2 XL, whose biases and positions are not counted";
}

// ---- Activations.

// s b h (34 + 5 a s / h) bytes a layer, equation 1.
TEST(MemoryPlanTest, ActivationsOfALayerAsInThePaper) {
  const MemoryPlanRequest base = Korthikanti(1, 12288, 96);  // of GPT-3 175B
  const double s = 2048, b = 4, h = 12288, a = 96;
  MemoryPlanRequest request = base;
  request.batch = 4;
  const auto bytes = [&](int tensor, bool sequence, Checkpointing checkpointing) {
    request.sharding.tensor_parallel = tensor;
    request.sharding.sequence_parallel = sequence;
    request.checkpointing = checkpointing;
    return static_cast<double>(BytesOf(Plan(request), "activations"));
  };
  EXPECT_DOUBLE_EQ(bytes(1, false, Checkpointing::kNone), s * b * h * (34 + 5 * a * s / h));
  EXPECT_DOUBLE_EQ(bytes(8, false, Checkpointing::kNone), s * b * h * (10 + 24.0 / 8 + 5 * a * s / (h * 8)));  // equation 2
  EXPECT_DOUBLE_EQ(bytes(8, true, Checkpointing::kNone), s * b * h / 8 * (34 + 5 * a * s / h));                // equation 4
  EXPECT_DOUBLE_EQ(bytes(8, true, Checkpointing::kFull), s * b * h / 8 * (2 + 34 + 5 * a * s / h));
}

TEST(MemoryPlanTest, CheckpointingOfManyLayers) {
  MemoryPlanRequest request = Korthikanti(96, 12288, 96);
  const double row = 2048.0 * 12288;
  request.checkpointing = Checkpointing::kSelective;  // equation 6, and one layer that is computed again
  EXPECT_DOUBLE_EQ(static_cast<double>(BytesOf(Plan(request), "activations")), 96 * 34 * row + 5.0 * 96 * 2048 * 2048);
  request.checkpointing = Checkpointing::kFull;
  EXPECT_DOUBLE_EQ(static_cast<double>(BytesOf(Plan(request), "activations.inputs")), 96 * 2 * row);
}

TEST(MemoryPlanTest, FlashAttentionKeepsOneNumberARow) {
  MemoryPlanRequest request = Llama8B();
  request.optimizer = Optimizer::kAdam;
  request.context_tokens = 8192;
  const MemoryPlan flash = Plan(request);
  EXPECT_EQ(BytesOf(flash, "activations.scores"), 0);
  EXPECT_EQ(BytesOf(flash, "activations.log_sum_exp"), 32 * 4 * 32 * 8192);
  request.standard_attention = true;
  EXPECT_EQ(BytesOf(Plan(request), "activations.scores"), std::int64_t{32} * 2 * 32 * 8192 * 8192);
}

// ---- Serving.

TEST(MemoryPlanTest, KvCachesAreWhatTheDaemonAllocates) {
  for (const std::int64_t tokens : {1, 17, 1000, 4096}) {
    MemoryPlanRequest request = Llama8B();
    request.batch = 7;
    request.context_tokens = tokens;
    const std::int64_t pages = 7 * ((tokens + 15) / 16);
    const auto geometry = kv_cache::CheckGeometry(
        {.data_type = kernels::DataType::kBFloat16, .layers = 32, .kv_heads = 8, .head_dim = 128, .capacity_pages = pages},
        kPlenty);
    ASSERT_OK(geometry);
    device::CpuDeviceOptions options;
    options.num_threads = 1;
    options.memory_limit_bytes = std::int64_t{64} << 30;  // pages that nobody writes take no memory
    auto device = device::CreateCpuDevice(options);
    ASSERT_OK(device);
    const auto arena = (*device)->Allocate(geometry->ArenaBytes());
    ASSERT_OK(arena);
    const auto measured = static_cast<double>((*device)->memory_stats().peak_allocated_bytes);
    EXPECT_NEAR(static_cast<double>(BytesOf(Plan(request), "kv_cache")) / measured, 1, 0.02) << tokens;
  }
}

struct WorkspaceCase {
  kernels::DataType type;
  std::int64_t tokens;
};

TEST(MemoryPlanTest, StandardAttentionsWorkspaceIsWhatTheDaemonTakes) {
  auto device = device::CreateCpuDevice({.num_threads = 2});
  ASSERT_OK(device);
  for (const auto& [type, tokens] : {WorkspaceCase{kernels::DataType::kBFloat16, 512},
                                     {kernels::DataType::kBFloat16, 1000},
                                     {kernels::DataType::kFloat32, 777},
                                     {kernels::DataType::kFloat16, 2048}}) {
    MemoryPlanRequest request = Llama8B();
    request.data_type = type;
    request.batch = 3;
    request.context_tokens = tokens;
    request.standard_attention = true;
    const kernels::attention::AttentionShape shape{.data_type = type,
                                                   .output_data_type = type,
                                                   .num_sequences = 3,
                                                   .query_heads = 32,
                                                   .kv_heads = 8,
                                                   .head_dim = 128,
                                                   .value_head_dim = 128};
    std::vector<kernels::attention::Sequence> sequences;
    for (std::int64_t i = 0; i < 3; ++i) {
      sequences.push_back(
          {.query_begin = i * tokens, .query_tokens = tokens, .key_begin = i * tokens, .key_tokens = tokens, .lse_begin = 0});
    }
    const auto plan = (*device)->PlanAttention(shape, sequences, kernels::attention::Algorithm::kStandard);
    ASSERT_OK(plan);
    const auto buffer = (*device)->lane(0).Allocate(plan->workspace_bytes);
    ASSERT_OK(buffer);
    const auto measured = static_cast<double>((*device)->memory_stats().allocated_bytes);
    EXPECT_NEAR(static_cast<double>(BytesOf(Plan(request), "attention_workspace")) / measured, 1, 0.02) << tokens;
  }
}

// ---- What fits.

TEST(MemoryPlanTest, TheLargestThatFitsFitsAndOneMoreDoesNot) {
  MemoryPlanRequest request = Llama8B();
  request.memory_bytes = std::int64_t{24} << 30;
  const MemoryPlan plan = Plan(request);
  EXPECT_TRUE(plan.fits);
  for (const auto& [extent, largest] : {std::pair(&MemoryPlanRequest::batch, plan.largest_batch),
                                        std::pair(&MemoryPlanRequest::context_tokens, plan.largest_context_tokens)}) {
    ASSERT_GT(largest, 1);
    MemoryPlanRequest changed = request;
    changed.*extent = largest;
    EXPECT_TRUE(Plan(changed).fits) << largest;
    changed.*extent = largest + 1;
    EXPECT_FALSE(Plan(changed).fits) << largest;
  }
  request.memory_bytes = 1;
  EXPECT_EQ(Plan(request).largest_batch, 0);
  EXPECT_FALSE(Plan(request).fits);
}

std::vector<std::string> LeverNames(const MemoryPlan& plan) {
  std::vector<std::string> names;
  for (const MemoryLever& lever : plan.levers) names.push_back(lever.name);
  return names;
}

TEST(MemoryPlanTest, LeversSaveWhatTheySay) {
  MemoryPlanRequest request = Llama8B();
  request.optimizer = Optimizer::kAdam;
  request.context_tokens = 8192;
  request.batch = 4;
  request.standard_attention = true;
  request.sharding.data_parallel = 8;
  const MemoryPlan plan = Plan(request);
  ASSERT_FALSE(plan.levers.empty());
  for (std::size_t i = 0; i < plan.levers.size(); ++i) {
    EXPECT_GT(plan.levers[i].saved_bytes, 0);
    EXPECT_EQ(plan.levers[i].total_bytes + plan.levers[i].saved_bytes, plan.total_bytes);
    EXPECT_LE(plan.levers[i].saved_bytes, plan.levers[i == 0 ? 0 : i - 1].saved_bytes) << "the most first";
  }
  EXPECT_EQ(plan.levers.front().name, "checkpointing=full") << "scores of all layers are the most there is";
  EXPECT_THAT(LeverNames(plan), Contains("zero=3"));
  request.sharding.data_parallel = 1;
  EXPECT_THAT(LeverNames(Plan(request)), Not(Contains("zero=3"))) << "there is nobody to share with";
  EXPECT_THAT(LeverNames(Plan(Llama8B())), Contains("kv_cache=float8"));
}

// ---- Hostile requests.

TEST(MemoryPlanTest, ImpossibleRequestsAreRefusedByField) {
  const std::pair<void (*)(MemoryPlanRequest&), const char*> cases[] = {
      {[](MemoryPlanRequest& r) { r.model.layers = 0; }, "model.layers"},
      {[](MemoryPlanRequest& r) { r.model.layers = -1; }, "model.layers"},
      {[](MemoryPlanRequest& r) { r.model.hidden_size = std::numeric_limits<std::int64_t>::max(); }, "model.hidden_size"},
      {[](MemoryPlanRequest& r) { r.model.kv_heads = 7; }, "model.kv_heads"},
      {[](MemoryPlanRequest& r) { r.model.experts_per_token = 2; }, "model.experts_per_token"},
      {[](MemoryPlanRequest& r) { r.model.hidden_size = 8; }, "model.head_dim"},
      {[](MemoryPlanRequest& r) { r.data_type = kernels::DataType::kInt32; }, "data_type"},
      {[](MemoryPlanRequest& r) { r.kv_cache_data_type = kernels::DataType::kInt64; }, "kv_cache_data_type"},
      {[](MemoryPlanRequest& r) { r.batch = -1; }, "batch"},
      {[](MemoryPlanRequest& r) { r.page_tokens = 257; }, "page_tokens"},
      {[](MemoryPlanRequest& r) { r.sharding.pipeline_parallel = 33; }, "sharding.pipeline_parallel"},
      {[](MemoryPlanRequest& r) { r.sharding.zero_stage = 4; }, "sharding.zero_stage"},
      {[](MemoryPlanRequest& r) { r.memory_bytes = -5; }, "memory_bytes"}};
  for (const auto& [spoil, field] : cases) {
    MemoryPlanRequest request = Llama8B();
    spoil(request);
    const absl::Status status = PlanMemory(request).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument)) << field;
    EXPECT_EQ(base::ErrorField(status), field);
  }
}

TEST(MemoryPlanTest, SumsBeyondCountingAreTheMostThereIs) {
  MemoryPlanRequest request = Llama8B();
  request.standard_attention = true;
  request.batch = std::int64_t{1} << 40;
  request.context_tokens = std::int64_t{1} << 40;
  const MemoryPlan plan = Plan(request);
  EXPECT_EQ(plan.total_bytes, std::numeric_limits<std::int64_t>::max());
  EXPECT_FALSE(plan.fits);
}

}  // namespace
}  // namespace ridgeline::engine
