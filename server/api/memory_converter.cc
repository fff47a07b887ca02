#include "server/api/memory_converter.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "server/api/data_type.h"
#include "server/api/snapshot_writer.h"
#include "server/api/tree_writer.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::api {
namespace {

constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;

void Convert(const device::MemoryStat& stat, v1::MemoryStat& message) {
  message.set_current(stat.current);
  message.set_peak(stat.peak);
  message.set_allocated(stat.allocated);
  message.set_freed(stat.freed);
}

void Convert(const device::PoolMemoryStats& stats, v1::PoolMemoryStats& message) {
  Convert(stats.allocated_bytes, *message.mutable_allocated_bytes());
  Convert(stats.reserved_bytes, *message.mutable_reserved_bytes());
  Convert(stats.active_bytes, *message.mutable_active_bytes());
  Convert(stats.inactive_split_bytes, *message.mutable_inactive_split_bytes());
  Convert(stats.requested_bytes, *message.mutable_requested_bytes());
  Convert(stats.allocations, *message.mutable_allocation());
  Convert(stats.segments, *message.mutable_segment());
  Convert(stats.active_blocks, *message.mutable_active());
}

std::uint64_t AddressOf(const char* data) { return reinterpret_cast<std::uintptr_t>(data); }

v1::MemoryBlockState StateOf(device::BlockUse use) {
  switch (use) {
    case device::BlockUse::kAllocated:
      return v1::MEMORY_BLOCK_STATE_ALLOCATED;
    case device::BlockUse::kAwaitingFree:
      return v1::MEMORY_BLOCK_STATE_AWAITING_FREE;
    case device::BlockUse::kFree:
      return v1::MEMORY_BLOCK_STATE_FREE;
  }
  return v1::MEMORY_BLOCK_STATE_UNSPECIFIED;
}

v1::MemoryAction ActionOf(device::MemoryAction action) {
  switch (action) {
    case device::MemoryAction::kAllocate:
      return v1::MEMORY_ACTION_ALLOCATE;
    case device::MemoryAction::kFree:
      return v1::MEMORY_ACTION_FREE;
    case device::MemoryAction::kFreeRequested:
      return v1::MEMORY_ACTION_FREE_REQUESTED;
    case device::MemoryAction::kFreeCompleted:
      return v1::MEMORY_ACTION_FREE_COMPLETED;
    case device::MemoryAction::kSegmentMapped:
      return v1::MEMORY_ACTION_SEGMENT_MAPPED;
    case device::MemoryAction::kSegmentUnmapped:
      return v1::MEMORY_ACTION_SEGMENT_UNMAPPED;
    case device::MemoryAction::kOutOfMemory:
      return v1::MEMORY_ACTION_OUT_OF_MEMORY;
  }
  return v1::MEMORY_ACTION_UNSPECIFIED;
}

// Operation and request of a block or an event.
template <typename Message>
void ConvertOwner(const device::MemoryOwner* owner, Message& message) {
  if (owner == nullptr) return;
  message.set_operation(owner->operation);
  message.set_request_id(owner->request_id);
}

void Convert(const device::SegmentSnapshot& segment, v1::MemorySegment& message) {
  message.set_address(AddressOf(segment.data));
  message.set_size_bytes(segment.size_bytes);
  message.set_pool(segment.small ? v1::MEMORY_POOL_SMALL : v1::MEMORY_POOL_LARGE);
  message.set_growing(segment.grows);
  for (const device::SegmentSnapshot::Block& block : segment.blocks) {
    v1::MemoryBlock& block_message = *message.add_blocks();
    block_message.set_size_bytes(block.size_bytes);
    block_message.set_requested_bytes(block.requested_bytes);
    block_message.set_state(StateOf(block.use));
    block_message.set_lane(block.lane);
    ConvertOwner(block.owner.get(), block_message);
  }
}

void Convert(const device::MemoryEvent& event, v1::MemoryEvent& message) {
  message.set_action(ActionOf(event.action));
  message.set_address(AddressOf(event.data));
  message.set_size_bytes(event.size_bytes);
  message.set_lane(event.lane);
  message.mutable_time()->set_seconds(event.unix_nanoseconds / kNanosecondsPerSecond);
  message.mutable_time()->set_nanos(static_cast<std::int32_t>(event.unix_nanoseconds % kNanosecondsPerSecond));
  ConvertOwner(event.owner.get(), message);
}

// ---- Plans.

absl::Status UnknownValue(std::string_view field, int value) {
  return base::InvalidField(field, absl::StrCat("is ", value, ", which this server does not know"));
}

engine::ModelGeometry FromMessage(const v1::ModelGeometry& model) {
  return {.layers = model.layers(),
          .hidden_size = model.hidden_size(),
          .query_heads = model.query_heads(),
          .kv_heads = model.kv_heads(),
          .head_dim = model.head_dim(),
          .intermediate_size = model.intermediate_size(),
          .vocabulary_size = model.vocabulary_size(),
          .tied_embeddings = model.tied_embeddings(),
          .gated = model.gated(),
          .experts = model.experts(),
          .experts_per_token = model.experts_per_token(),
          .parameters = model.parameters()};
}

// The enumerators of the engine have the numbers of the messages'.
template <typename To, typename From>
absl::StatusOr<To> EnumFromMessage(From value, int most, std::string_view field) {
  if (value < 0 || value > most) return UnknownValue(field, value);
  return static_cast<To>(value);
}
static_assert(static_cast<int>(engine::Optimizer::kSgd) == v1::OPTIMIZER_SGD);
static_assert(static_cast<int>(engine::Optimizer::kAdam) == v1::OPTIMIZER_ADAM);
static_assert(static_cast<int>(engine::Checkpointing::kFull) == v1::CHECKPOINTING_FULL);

}  // namespace

v1::MemoryStats ToMessage(const device::MemoryStats& stats) {
  v1::MemoryStats message;
  message.set_allocated_bytes(stats.allocated_bytes);
  message.set_reserved_bytes(stats.reserved_bytes);
  message.set_active_bytes(stats.active_bytes);
  message.set_requested_bytes(stats.requested_bytes);
  message.set_peak_allocated_bytes(stats.peak_allocated_bytes);
  message.set_peak_reserved_bytes(stats.peak_reserved_bytes);
  message.set_inactive_split_bytes(stats.inactive_split_bytes);
  message.set_allocation_count(stats.allocation_count);
  message.set_total_allocation_count(stats.total_allocation_count);
  message.set_segment_count(stats.segment_count);
  message.set_retries(stats.retries);
  message.set_out_of_memory_count(stats.out_of_memory_count);
  message.set_largest_free_block_bytes(stats.largest_free_block_bytes);
  message.set_limit_bytes(stats.limit_bytes);
  message.set_promised_bytes(stats.promised_bytes);
  message.set_fragmentation(stats.fragmentation);
  Convert(stats.all, *message.mutable_all());
  Convert(stats.small_pool, *message.mutable_small_pool());
  Convert(stats.large_pool, *message.mutable_large_pool());
  return message;
}

absl::StatusOr<v1::MemorySnapshot> ToMessage(device::MemorySnapshot snapshot, const v1::GetMemorySnapshotRequest& request) {
  if (request.has_max_events()) {
    if (request.max_events() < 0) return base::InvalidField("max_events", absl::StrCat("is ", request.max_events()));
    auto& history = snapshot.history;
    const auto num_events = static_cast<std::int64_t>(history.size());
    history.erase(history.begin(), history.begin() + std::max<std::int64_t>(0, num_events - request.max_events()));
  }
  v1::MemorySnapshot message;
  if (request.format() == v1::MEMORY_SNAPSHOT_FORMAT_UNSPECIFIED) {
    for (const device::SegmentSnapshot& segment : snapshot.segments) Convert(segment, *message.add_segments());
    for (const device::MemoryEvent& event : snapshot.history) Convert(event, *message.add_events());
  } else if (request.format() == v1::MEMORY_SNAPSHOT_FORMAT_PICKLE) {
    PickleWriter writer;
    WriteSnapshot(snapshot, writer);
    message.set_file(writer.Finish());
  } else if (request.format() == v1::MEMORY_SNAPSHOT_FORMAT_JSON) {
    JsonWriter writer;
    WriteSnapshot(snapshot, writer);
    message.set_file(writer.Finish());
  } else {
    return UnknownValue("format", request.format());
  }
  return message;
}

absl::StatusOr<engine::MemoryPlanRequest> FromMessage(const v1::PlanMemoryRequest& request, const device::DeviceInfo& device) {
  if (!request.has_model()) return base::InvalidField("model", "is missing");
  engine::MemoryPlanRequest plan;
  plan.model = FromMessage(request.model());
  RIDGELINE_ASSIGN_OR_RETURN(const auto data_type, FromMessage(request.data_type(), "data_type"));
  plan.data_type = data_type.value_or(kernels::DataType::kBFloat16);
  RIDGELINE_ASSIGN_OR_RETURN(const auto kv_type, FromMessage(request.kv_cache_data_type(), "kv_cache_data_type"));
  plan.kv_cache_data_type = kv_type.value_or(plan.data_type);
  RIDGELINE_ASSIGN_OR_RETURN(plan.optimizer,
                             EnumFromMessage<engine::Optimizer>(request.optimizer(), v1::Optimizer_MAX, "optimizer"));
  RIDGELINE_ASSIGN_OR_RETURN(plan.checkpointing, EnumFromMessage<engine::Checkpointing>(
                                                     request.checkpointing(), v1::Checkpointing_MAX, "checkpointing"));
  RIDGELINE_ASSIGN_OR_RETURN(plan.sharding.zero_stage,
                             EnumFromMessage<int>(request.sharding().zero_stage(), v1::ZeroStage_MAX, "sharding.zero_stage"));
  plan.sharding.data_parallel = request.sharding().data_parallel();
  plan.sharding.tensor_parallel = request.sharding().tensor_parallel();
  plan.sharding.pipeline_parallel = request.sharding().pipeline_parallel();
  plan.sharding.sequence_parallel = request.sharding().sequence_parallel();
  plan.batch = request.batch();
  plan.context_tokens = request.context_tokens();
  plan.standard_attention = request.standard_attention();
  plan.dropout = request.dropout();
  plan.page_tokens = request.page_tokens();
  plan.memory_bytes = request.memory_bytes() == 0 ? device.memory_limit_bytes : request.memory_bytes();
  plan.is_on_gpu = device.type == device::DeviceType::kCuda;
  return plan;
}

v1::MemoryPlan ToMessage(const engine::MemoryPlan& plan) {
  v1::MemoryPlan message;
  for (const engine::MemoryTerm& term : plan.terms) {
    v1::MemoryTerm& term_message = *message.add_terms();
    term_message.set_name(term.name);
    term_message.set_bytes(term.bytes);
    term_message.set_formula(term.formula);
    term_message.set_source(term.source);
  }
  message.set_total_bytes(plan.total_bytes);
  message.set_memory_bytes(plan.memory_bytes);
  message.set_fits(plan.fits);
  message.set_largest_batch(plan.largest_batch);
  message.set_largest_context_tokens(plan.largest_context_tokens);
  message.set_parameters(plan.parameters);
  for (const engine::MemoryLever& lever : plan.levers) {
    v1::MemoryLever& lever_message = *message.add_levers();
    lever_message.set_name(lever.name);
    lever_message.set_description(lever.description);
    lever_message.set_total_bytes(lever.total_bytes);
    lever_message.set_saved_bytes(lever.saved_bytes);
  }
  return message;
}

}  // namespace ridgeline::api
