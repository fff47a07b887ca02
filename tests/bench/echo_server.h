// gRPC alone, as the yardstick for the daemon: the daemon's Attend method over raw ByteBuffers, doing nothing with
// them.
#pragma once

#include <string>

namespace ridgeline::bench {

// Answers Attend with the first `response_bytes` bytes of its request (all of them if that is fewer). Serves until
// standard input is closed; writes "ready" and a newline to standard output when it listens. Returns a process exit status.
int RunEchoServer(const std::string& address, long response_bytes);

}  // namespace ridgeline::bench
