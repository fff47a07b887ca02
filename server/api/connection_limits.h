// What one peer, and all of them, may cost the gRPC port.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace grpc {
class ServerBuilder;
}  // namespace grpc

namespace ridgeline::api {

struct ConnectionLimits {
  std::int64_t max_message_bytes = std::int64_t{1} << 30;  // of a request; up to 2147483647
  // Calls that are open on one connection; further ones wait in the client. Positive.
  int max_streams_per_connection = 1024;
  // How long a peer may leave a ping unanswered, give or take half of it: then it is gone, and so are its calls. Likewise for a
  // peer that connects and then does not begin. Positive.
  absl::Duration peer_timeout = absl::Seconds(40);
  // From this age on a connection takes no new calls, so that its client makes a new one, with a certificate that is valid by
  // then; calls that are still open after as long again are cancelled. Positive.
  absl::Duration max_connection_age = absl::InfiniteDuration();
};

void SetConnectionLimits(const ConnectionLimits& limits, grpc::ServerBuilder& builder);

}  // namespace ridgeline::api
