// What a load says of itself.
#pragma once

#include <string>

#include "client/cli/document.h"
#include "client/cli/load_run.h"

namespace ridgeline::cli {

// The sections of requests, sessions and rates, and one row for each kind of work and each time: latency, and where it went.
// A session's step counts a request for each layer, and its latency once. `open_loop`
// shows what only that loop has; programs get the same keys from both.
void AppendOutcome(Document& document, LoadOutcome outcome, bool open_loop);

// What keeps the load from being a success, in a sentence; empty: nothing does. `allow_refused`: RESOURCE_EXHAUSTED doesn't.
std::string ComplaintAbout(const LoadOutcome& outcome, bool allow_refused);

}  // namespace ridgeline::cli
