// Calls of methods that have no stub here, in bytes.
#pragma once

#include <map>
#include <string>

#include "grpcpp/support/status.h"

namespace ridgeline {

struct RawAnswer {
  grpc::Status status;
  std::string response;
  std::multimap<std::string, std::string> trailers;
};

// One request, one response: on the wire, a streaming method looks the same. `method` is its path, as in
// "/package.Service/Method".
RawAnswer CallRaw(const std::string& address, const std::string& method, const std::string& request);

}  // namespace ridgeline
