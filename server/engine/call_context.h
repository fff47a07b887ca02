// Who waits for a call's answer, and until when.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/time/time.h"
#include "server/engine/kv_cache/resources.h"
#include "server/engine/trace/trace_records.h"

namespace ridgeline::engine {

struct CallContext {
  TraceOrigin origin;            // whose work it is, for logs and traces
  kv_cache::Caller caller = {};  // takes turns with other clients; an empty name: one of those who give none
  absl::Time deadline = absl::InfiniteFuture();
  std::int64_t max_answer_bytes = std::numeric_limits<std::int64_t>::max();  // of the tensors that the caller can take back
};

}  // namespace ridgeline::engine
