#include "server/engine/memory_plan/memory_plan.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "kernels/common/saturating.h"
#include "server/base/status_macros.h"
#include "server/engine/memory_plan/check_request.h"
#include "server/engine/memory_plan/terms.h"

namespace ridgeline::engine {
namespace {

using kernels::DataType;

std::int64_t TotalBytes(const MemoryPlanRequest& request) {
  std::int64_t total_bytes = 0;
  for (const MemoryTerm& term : PlanTerms(request)) total_bytes = kernels::SaturatingAdd(total_bytes, term.bytes);
  return total_bytes;
}

// The largest value of one of the request's extents that fits; 0: none does. The total never falls when the extent grows.
std::int64_t LargestThatFits(MemoryPlanRequest request, std::int64_t MemoryPlanRequest::*extent) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  std::int64_t fits = 0;
  std::int64_t fails = kMost + 1;
  while (fails - fits > 1) {
    const std::int64_t middle = fits + (fails - fits) / 2;
    request.*extent = middle;
    (TotalBytes(request) <= request.memory_bytes ? fits : fails) = middle;
  }
  return fits;
}

struct Change {
  const char* name;
  const char* description;
  std::function<void(MemoryPlanRequest&)> apply;
};

// What could be changed; those that change nothing are found by their effect.
std::vector<Change> Changes(const MemoryPlanRequest& request) {
  const bool is_trained = request.optimizer != Optimizer::kNone;
  std::vector<Change> changes = {
      {"batch/2", "half as many sequences at a time",
       [](MemoryPlanRequest& r) { r.batch = std::max<std::int64_t>(1, r.batch / 2); }},
      {"context/2", "half the context",
       [](MemoryPlanRequest& r) { r.context_tokens = std::max<std::int64_t>(1, r.context_tokens / 2); }},
      {"tensor_parallel*2", "twice as many devices share each layer: two collectives a layer",
       [](MemoryPlanRequest& r) { r.sharding.tensor_parallel *= 2; }},
      {"attention=flash", "attention keeps no scores, and computes them again in the backward pass",
       [](MemoryPlanRequest& r) { r.standard_attention = false; }}};
  if (!is_trained) {
    changes.push_back({"kv_cache=float8", "keys and values in 8 bits",
                       [](MemoryPlanRequest& r) { r.kv_cache_data_type = DataType::kFloat8E4M3; }});
    return changes;
  }
  changes.push_back({"checkpointing=selective", "what attention computes between query and output is computed again",
                     [](MemoryPlanRequest& r) { r.checkpointing = std::max(r.checkpointing, Checkpointing::kSelective); }});
  changes.push_back({"checkpointing=full", "each layer is computed again from its input: about a third more computing",
                     [](MemoryPlanRequest& r) { r.checkpointing = Checkpointing::kFull; }});
  changes.push_back({"zero=1", "data-parallel devices share the optimiser's state",
                     [](MemoryPlanRequest& r) { r.sharding.zero_stage = std::max(r.sharding.zero_stage, 1); }});
  changes.push_back({"zero=2", "and the gradients",
                     [](MemoryPlanRequest& r) { r.sharding.zero_stage = std::max(r.sharding.zero_stage, 2); }});
  changes.push_back(
      {"zero=3", "and the weights: half as much again is sent", [](MemoryPlanRequest& r) { r.sharding.zero_stage = 3; }});
  changes.push_back({"optimizer=adam_8bit", "the optimiser's moments in 8 bits", [](MemoryPlanRequest& r) {
                       if (r.optimizer == Optimizer::kAdam) r.optimizer = Optimizer::kAdam8Bit;
                     }});
  if (request.sharding.tensor_parallel > 1) {
    changes.push_back({"sequence_parallel", "tensor-parallel devices share the tokens between layers",
                       [](MemoryPlanRequest& r) { r.sharding.sequence_parallel = true; }});
  }
  return changes;
}

std::vector<MemoryLever> Levers(const MemoryPlanRequest& request, std::int64_t total_bytes) {
  std::vector<MemoryLever> levers;
  for (const Change& change : Changes(request)) {
    MemoryPlanRequest changed = request;
    change.apply(changed);
    const std::int64_t changed_bytes = TotalBytes(changed);
    if (changed_bytes < total_bytes) {
      levers.push_back({change.name, change.description, changed_bytes, total_bytes - changed_bytes});
    }
  }
  std::stable_sort(levers.begin(), levers.end(),
                   [](const MemoryLever& a, const MemoryLever& b) { return a.saved_bytes > b.saved_bytes; });
  return levers;
}

}  // namespace

absl::StatusOr<MemoryPlan> PlanMemory(const MemoryPlanRequest& request) {
  RIDGELINE_ASSIGN_OR_RETURN(const MemoryPlanRequest checked, CheckRequest(request));
  MemoryPlan plan;
  plan.terms = PlanTerms(checked);
  plan.total_bytes = TotalBytes(checked);
  plan.memory_bytes = checked.memory_bytes;
  plan.fits = plan.total_bytes <= plan.memory_bytes;
  plan.largest_batch = LargestThatFits(checked, &MemoryPlanRequest::batch);
  plan.largest_context_tokens = LargestThatFits(checked, &MemoryPlanRequest::context_tokens);
  plan.parameters = CountParameters(checked.model);
  plan.levers = Levers(checked, plan.total_bytes);
  return plan;
}

}  // namespace ridgeline::engine
