// The part of the roofline that is the matrix unit's.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/engine/benchmark/matrix_types.h"
#include "server/engine/benchmark/subject.h"

namespace ridgeline::engine::benchmark {

// An array of `array_bytes` bytes, read once and multiplied as often as makes `flops_per_byte`. INVALID_ARGUMENT if the array
// is not whole parts that can be multiplied at that intensity.
absl::StatusOr<Subject> MakeMatrixIntensity(const PointContext& context, const MatrixTypeRow& type, std::int64_t flops_per_byte,
                                            std::int64_t array_bytes);

}  // namespace ridgeline::engine::benchmark
