// The flags of `fuse`, and the request made from them.
#pragma once

#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/statusor.h"
#include "ridgeline/v1/fused.pb.h"

ABSL_DECLARE_FLAG(std::string, op);

namespace ridgeline::cli {

// The modes that --mode stands for, in the order in which they run.
absl::StatusOr<std::vector<v1::ExecutionMode>> ModesFromFlags();
std::string ModeName(v1::ExecutionMode mode);

// A request for --op, with tensors from files or, where --shape is given, made by the device; the optional ones too. Usage
// errors for an operation that the contract lacks, and for flags that it does not have.
absl::StatusOr<v1::FuseRequest> FuseRequestFromFlags();

// The tensor whose shape is that of --shape, or of the file of --input; of rope_append the query, or the key.
const v1::Tensor& MainTensor(const v1::FuseRequest& request);

}  // namespace ridgeline::cli
