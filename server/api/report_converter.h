// What work cost, on the wire.
#pragma once

#include "ridgeline/v1/execution.pb.h"
#include "server/engine/report.h"

namespace ridgeline::api {

v1::ExecutionReport ToMessage(const engine::ExecutionReport& report);

}  // namespace ridgeline::api
