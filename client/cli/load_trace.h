// The sessions of a load, as a file has them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ridgeline::cli {

struct TracedSession {
  double arrival_seconds = 0;       // from the load's start, its warm-up included
  std::int64_t prefill_tokens = 0;  // 1 to kMaxContextTokens
  std::int64_t decode_tokens = 0;   // 0 to kMaxContextTokens
};

// A line a session: arrival, prefill tokens and decode tokens, separated by commas or spaces, the arrivals in order; empty
// lines and lines that begin with # are skipped. A usage error, naming --trace, for anything else; NOT_FOUND for a file that
// can't be read.
absl::StatusOr<std::vector<TracedSession>> ReadSessionTrace(const std::string& path);

}  // namespace ridgeline::cli
