// Requests for fused operations.
#pragma once

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "server/engine/fuse_request.h"
#include "tests/support/fused_case.h"
#include "tests/unit/engine/awaited.h"

namespace ridgeline::engine {

using FuseAnswer = Awaited<absl::StatusOr<FuseResult>>;

// The case as a request; the case keeps the bytes. Rows are [rows, N], or [rows, heads, head_dim]. No kRopeAppend.
FuseRequest RequestOf(support::FusedCase& fused_case, kernels::fused::Mode mode);

// Fails unless the result's tensors are those that the case should have.
::testing::AssertionResult IsRight(support::FusedCase& fused_case, kernels::fused::Mode mode, const FuseResult& result);

// A layer norm, with random elements.
FuseRequest SmallFuseRequest();

}  // namespace ridgeline::engine
