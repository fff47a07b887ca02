// An ExecutionReport as fields of a document.
#pragma once

#include "client/cli/document.h"
#include "client/cli/measurement.h"
#include "ridgeline/v1/execution.pb.h"

namespace ridgeline::cli {

// "memory", "compute", or missing.
Value BoundValue(v1::Bound bound);
// Missing where the server knows no roof.
Value RoofFractionValue(const v1::ExecutionReport& report);

// Appends the sections "Execution", "Time" and "Cost".
void AppendReport(Document& document, const Measurement& measurement, int num_runs);

}  // namespace ridgeline::cli
