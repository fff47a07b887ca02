// One attention call as work for a lane: upload, kernel, download, report.
#pragma once

#include <memory>

#include "kernels/attention/plan.h"
#include "server/device/device.h"
#include "server/engine/engine.h"
#include "server/engine/engine_metrics.h"
#include "server/engine/roofline.h"
#include "server/engine/validate_attend.h"
#include "server/engine/work.h"

namespace ridgeline::engine {

// What answers are made with; outlives all work.
struct AttendSurroundings {
  const device::DeviceInfo& device;
  const Roofline& roofline;
  const EngineMetrics& metrics;
};

std::unique_ptr<Work> MakeAttendWork(AttendProblem problem, kernels::attention::AttentionPlan plan, AttendDone done,
                                     const AttendSurroundings& surroundings);

}  // namespace ridgeline::engine
