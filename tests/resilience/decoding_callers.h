// Sessions: each has a cache with one sequence and decodes on a stream, token by token.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "tests/resilience/tally.h"

namespace ridgeline::resilience {

// One session after the other, until `ends`. Some streams break off between a step and its answer. Such a step may be carried
// out, even after the session's next call: so that goes on with a fork of its sequence, cut to the tokens that it knows of.
void Decode(const std::string& address, std::uint64_t seed, Tally& tally, const std::atomic<bool>& ends);

}  // namespace ridgeline::resilience
