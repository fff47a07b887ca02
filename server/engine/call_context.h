// Who waits for a call's answer, and until when.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "absl/time/time.h"

namespace ridgeline::engine {

struct CallContext {
  std::string request_id;   // for logs
  std::string client = {};  // takes turns with other clients; empty: one of those who give no name
  absl::Time deadline = absl::InfiniteFuture();
  std::int64_t max_answer_bytes = std::numeric_limits<std::int64_t>::max();  // of the tensors that the caller can take back
};

}  // namespace ridgeline::engine
