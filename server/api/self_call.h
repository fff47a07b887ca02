// The daemon calls itself: what a call costs that computes nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "ridgeline/v1/benchmark.grpc.pb.h"
#include "server/base/mutex.h"

namespace ridgeline::api {

// Thread-safe.
class SelfCall {
 public:
  // The server listens on `addresses`, with TLS on those that are no unix sockets if `has_tls`. Calls go to the first that asks
  // for no credentials.
  void Connect(const std::vector<std::string>& addresses, bool has_tls);

  // A call over that socket, awaited: GetRoofline, whose answer lies ready. UNIMPLEMENTED where there is no such address, or
  // not yet; UNAVAILABLE.
  absl::Status Run();

 private:
  base::Mutex mutex_;
  std::shared_ptr<v1::BenchmarkService::Stub> stub_ ABSL_GUARDED_BY(mutex_);  // null: there is no such address
};

}  // namespace ridgeline::api
