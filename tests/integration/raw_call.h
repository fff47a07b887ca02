// Calls of methods that have no stub here, in bytes.
#pragma once

#include <map>
#include <string>

#include "absl/time/time.h"
#include "grpcpp/support/status.h"

namespace ridgeline {

struct RawAnswer {
  grpc::Status status;
  std::string response;
  std::multimap<std::string, std::string> trailers;
};

// One request, one response: on the wire, a streaming method looks the same. `method` is its path, as in
// "/package.Service/Method".
// Of a stream of several answers the first alone is read, and the call then ends with its deadline.
RawAnswer CallRaw(const std::string& address, const std::string& method, const std::string& request,
                  absl::Duration timeout = absl::Minutes(1));

}  // namespace ridgeline
