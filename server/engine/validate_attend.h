// The gate for Attend with dense keys and values: what came is either a problem that every later step may trust, or an error
// that names the field.
//
// Nothing behind this gate checks shapes again. It costs microseconds, allocates nothing in proportion to a number that a
// client merely wrote down, and computes sizes in arithmetic that cannot overflow.
#pragma once

#include "absl/status/statusor.h"
#include "server/engine/attend_problem.h"
#include "server/engine/attend_request.h"

namespace ridgeline::engine {

// Errors: INVALID_ARGUMENT, or UNIMPLEMENTED for what this server lacks, with the field's path in ridgeline.v1.AttendRequest.
absl::StatusOr<AttendProblem> ValidateAttend(AttendRequest request);

}  // namespace ridgeline::engine
