// gRPC alone, as the yardstick for the daemon: the daemon's Attend and AttendStream methods over raw ByteBuffers, doing nothing
// with them.
#pragma once

#include <string>

namespace ridgeline::bench {

// Answers each request with the first `response_bytes` bytes of it (all of them if that is fewer). Serves until standard input
// is closed. Returns a process exit status.
int RunEchoServer(const std::string& address, long response_bytes);

}  // namespace ridgeline::bench
