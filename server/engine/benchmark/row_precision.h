// Layer norm and softmax as the precision benchmark measures them: what a type costs and spares where memory is the limit.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/common/data_type.h"
#include "kernels/fused/fused.h"
#include "server/engine/benchmark/subject.h"

namespace ridgeline::engine::benchmark {

// Of 4 * size rows of `size` elements, normal(0, 1). Its figure is relative_error, against the operation in double precision of
// the inputs before they were rounded to the type.
absl::StatusOr<Subject> MakeRowPrecision(const PointContext& context, kernels::fused::Op op, kernels::DataType type);

}  // namespace ridgeline::engine::benchmark
