// A memory snapshot as torch.cuda.memory._snapshot() returns it, for the tools that read those.
#pragma once

#include "server/api/tree_writer.h"
#include "server/device/memory_snapshot.h"

namespace ridgeline::api {

// Operation and request stand where PyTorch has frames of a stack; lanes are streams; the device is number 0.
void WriteSnapshot(const device::MemorySnapshot& snapshot, TreeWriter& writer);

}  // namespace ridgeline::api
