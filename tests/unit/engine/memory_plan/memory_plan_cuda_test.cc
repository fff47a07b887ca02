// Plans for a GPU against what its standard attention lays out.
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/standard/standard_cuda_layout.h"
#include "server/engine/memory_plan/memory_plan.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::engine {
namespace {

using kernels::DataType;

TEST(MemoryPlanOnCudaTest, StandardAttentionsWorkspaceIsWhatTheGpuTakes) {
  for (const DataType type : {DataType::kBFloat16, DataType::kFloat32}) {
    for (const std::int64_t tokens : {512, 1000, 4093}) {
      MemoryPlanRequest request;
      request.model = {.layers = 32, .hidden_size = 4096, .query_heads = 32, .kv_heads = 8};
      request.data_type = type;
      request.batch = 2;
      request.context_tokens = tokens;
      request.standard_attention = true;
      request.memory_bytes = 1;
      request.is_on_gpu = true;
      const auto plan = PlanMemory(request);
      ASSERT_OK(plan);
      std::int64_t planned_bytes = 0;
      for (const MemoryTerm& term : plan->terms) planned_bytes += term.name == "attention_workspace" ? term.bytes : 0;
      const kernels::attention::AttentionShape shape{.data_type = type,
                                                     .output_data_type = type,
                                                     .num_sequences = 2,
                                                     .query_heads = 32,
                                                     .kv_heads = 8,
                                                     .head_dim = 128,
                                                     .value_head_dim = 128};
      std::vector<kernels::attention::Sequence> sequences(
          2, {.query_begin = 0, .query_tokens = tokens, .key_begin = 0, .key_tokens = tokens, .lse_begin = 0});
      const auto laid_out = static_cast<double>(kernels::attention::LayOutStandardOnCuda(shape, sequences.data()).total_bytes);
      EXPECT_NEAR(static_cast<double>(planned_bytes) / laid_out, 1, 0.02) << tokens;
    }
  }
}

}  // namespace
}  // namespace ridgeline::engine
