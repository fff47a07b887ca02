// The state of a GPU as a message.
#pragma once

#include "ridgeline/v1/device.pb.h"
#include "server/device/device.h"

namespace ridgeline::api {

// What the status does not say stays unset.
void Convert(const device::GpuStatus& status, v1::GpuStatus& message);

}  // namespace ridgeline::api
