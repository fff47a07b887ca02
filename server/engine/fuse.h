// One fused operation as work for a lane: upload, kernel or kernels, download, report. One that appends to a KV cache holds its
// sequences from the time its launch leaves until that has ended.
#pragma once

#include <memory>

#include "server/device/device.h"
#include "server/engine/call_context.h"
#include "server/engine/engine.h"
#include "server/engine/engine_metrics.h"
#include "server/engine/fuse_problem.h"
#include "server/engine/kv_cache/kv_cache_store.h"
#include "server/engine/roofline.h"
#include "server/engine/work.h"

namespace ridgeline::engine {

// What answers are made with; outlives all work.
struct FuseSurroundings {
  const device::DeviceInfo& device;
  const Roofline& roofline;
  const EngineMetrics& metrics;
  kv_cache::KvCacheStore& kv_caches;
};

std::unique_ptr<Work> MakeFuseWork(FuseProblem problem, FuseDone done, const FuseSurroundings& surroundings);

WorkTraits TraitsOf(const FuseProblem& problem, const CallContext& context);

}  // namespace ridgeline::engine
