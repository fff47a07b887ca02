// The parts of an attention call that dense and paged ones have in common: options and output.
#pragma once

#include "absl/status/status.h"
#include "server/engine/attend_problem.h"
#include "server/engine/attend_request.h"
#include "server/engine/check_tensor.h"
#include "server/engine/token_tensor.h"

namespace ridgeline::engine {

// All but the bias. Errors name fields below "options".
absl::Status TakeOptions(AttentionOptions& options, const TokenLayout& query, AttendProblem& problem);

// The shape of the problem and its query are set. Errors name fields below "output".
absl::Status PlanOutput(const OutputOptions& output, const Shape& query_shape, const TokenLayout& query,
                        AttendProblem& problem);

// A tensor of float32; `fits` is ok if its shape is the one needed.
absl::StatusOr<TensorSource> TakeFloat32(const char* field, std::optional<Tensor>& tensor, const absl::Status& fits);

}  // namespace ridgeline::engine
