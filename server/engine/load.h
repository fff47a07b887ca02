// How busy the engine is.
#pragma once

#include <cstdint>

namespace ridgeline::engine {

struct Load {
  int queued_requests = 0;
  int running_requests = 0;  // = lanes busy
  std::int64_t admitted_bytes = 0;
  bool draining = false;
};

}  // namespace ridgeline::engine
