// Self-attention over tokens that the daemon makes.
#pragma once

#include <cstdint>

#include "ridgeline/v1/attention.pb.h"

namespace ridgeline {

// Of one sequence in float32: query, key and value are random, [1, tokens, heads, head_dim].
v1::AttendRequest RandomAttend(std::int64_t tokens, v1::Algorithm algorithm = v1::ALGORITHM_UNSPECIFIED, std::int64_t heads = 1,
                               std::int64_t head_dim = 64);

}  // namespace ridgeline
