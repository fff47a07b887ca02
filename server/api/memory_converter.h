// The allocator's statistics and snapshots, and plans, to and from messages.
#pragma once

#include "absl/status/statusor.h"
#include "ridgeline/v1/device.pb.h"
#include "ridgeline/v1/memory.pb.h"
#include "server/device/device.h"
#include "server/device/memory_snapshot.h"
#include "server/device/memory_stats.h"
#include "server/engine/memory_plan/memory_plan.h"

namespace ridgeline::api {

v1::MemoryStats ToMessage(const device::MemoryStats& stats);

// As `request` asks for it. Errors: INVALID_ARGUMENT naming the field.
absl::StatusOr<v1::MemorySnapshot> ToMessage(device::MemorySnapshot snapshot, const v1::GetMemorySnapshotRequest& request);

// On `device`. Errors: INVALID_ARGUMENT naming the field.
absl::StatusOr<engine::MemoryPlanRequest> FromMessage(const v1::PlanMemoryRequest& request, const device::DeviceInfo& device);
v1::MemoryPlan ToMessage(const engine::MemoryPlan& plan);

}  // namespace ridgeline::api
