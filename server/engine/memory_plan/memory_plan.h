// What a decoder-only transformer takes of one device's memory, by formula: arithmetic alone, no device.
//
//   serving    weights │ KV cache │ activations of one layer
//   training   weights │ gradients │ master weights │ optimiser state │ activations of all layers, or what is kept of them
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/common/data_type.h"

namespace ridgeline::engine {

// Fields as in ridgeline.v1.ModelGeometry.
struct ModelGeometry {
  std::int64_t layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t vocabulary_size = 0;
  bool tied_embeddings = false;
  bool gated = false;
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t parameters = 0;
};

enum class Optimizer : std::uint8_t { kNone, kAdam, kAdam8Bit, kSgdMomentum, kSgd };
enum class Checkpointing : std::uint8_t { kNone, kSelective, kFull };

struct Sharding {
  std::int64_t data_parallel = 0;
  std::int64_t tensor_parallel = 0;
  std::int64_t pipeline_parallel = 0;
  int zero_stage = 0;  // 0 to 3
  bool sequence_parallel = false;
};

// Fields as in ridgeline.v1.PlanMemoryRequest; 0 means the default there.
struct MemoryPlanRequest {
  ModelGeometry model;
  kernels::DataType data_type = kernels::DataType::kBFloat16;
  Optimizer optimizer = Optimizer::kNone;
  std::int64_t batch = 0;
  std::int64_t context_tokens = 0;
  Checkpointing checkpointing = Checkpointing::kNone;
  Sharding sharding;
  bool standard_attention = false;
  bool dropout = false;
  kernels::DataType kv_cache_data_type = kernels::DataType::kBFloat16;
  std::int64_t page_tokens = 0;
  std::int64_t memory_bytes = 0;
  bool is_on_gpu = false;  // what attention's workspace holds depends on it
};

struct MemoryTerm {
  std::string name;
  std::int64_t bytes;
  std::string formula;
  std::string source;
};

struct MemoryLever {
  std::string name;
  std::string description;
  std::int64_t total_bytes;
  std::int64_t saved_bytes;
};

struct MemoryPlan {
  std::vector<MemoryTerm> terms;
  std::int64_t total_bytes = 0;
  std::int64_t memory_bytes = 0;
  bool fits = false;
  std::int64_t largest_batch = 0;
  std::int64_t largest_context_tokens = 0;
  std::int64_t parameters = 0;
  std::vector<MemoryLever> levers;
};

// Sums that would overflow are int64's largest. Errors: INVALID_ARGUMENT naming the field.
absl::StatusOr<MemoryPlan> PlanMemory(const MemoryPlanRequest& request);

}  // namespace ridgeline::engine
