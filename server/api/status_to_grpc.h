// Errors on their way out: the only place that knows both absl::Status and gRPC's.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace ridgeline::api {

// Every error carries google.rpc.ErrorInfo (domain "ridgeline.v1" and a reason of server/base/error.h); one about a field also
// BadRequest, one that may pass also RetryInfo. Messages are cut at 1 KiB: they travel in headers, whose size peers limit.
// `request_id`, unless it is empty, goes along as RequestInfo: what the server's log knows the request by.
grpc::Status ToGrpc(const absl::Status& status, const std::string& request_id = "");

}  // namespace ridgeline::api
