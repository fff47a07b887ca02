// What `ridgeline load` is asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/load_schedule.h"
#include "client/cli/load_session_requests.h"
#include "client/cli/load_session_schedule.h"
#include "client/cli/work_mix.h"
#include "ridgeline/v1/attention.pb.h"

namespace ridgeline::cli {

// Sessions over KV caches.
struct PagedLoad {
  SessionMix mix;
  SessionGeometry geometry;
  bool recreate = false;
  double cancel_share = 0;
  int num_caches = 1;
  std::int64_t capacity_pages = 0;  // of each cache; 0: enough for the longest sessions
};

// Flags as they were given, to be repeated in the result.
struct LoadFlags {
  std::string shapes;
  std::string context;        // empty: the shape's
  std::string decode_tokens;  // of sessions
  std::string trace;          // empty: none
};

struct Load {
  LoadFlags flags;
  LoadTiming timing;
  int num_workers = 1;  // clients, or the most requests or sessions under way
  int num_channels = 1;
  v1::DataType type = v1::DATA_TYPE_FLOAT32;
  v1::Algorithm algorithm = v1::ALGORITHM_UNSPECIFIED;
  bool inline_output = false;
  bool allow_refused = false;
  WorkMix mix;  // of requests that bring their keys and values
  std::optional<PagedLoad> paged;

  bool open_loop() const { return timing.rate_per_second.has_value() || (paged.has_value() && !paged->mix.trace.empty()); }
};

// A usage error, naming the flag, for flags that are wrong or don't go together.
absl::StatusOr<Load> LoadFromFlags();

}  // namespace ridgeline::cli
