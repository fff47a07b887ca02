#include "server/api/self_call.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::api {
namespace {

using support::StatusIs;
using ::testing::HasSubstr;

TEST(SelfCall, ThereIsNoneBeforeTheServerListens) {
  SelfCall call;
  EXPECT_THAT(call.Run(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("listens on no address")));
}

TEST(SelfCall, ThereIsNoneWhereAllAddressesWantTls) {
  SelfCall call;
  call.Connect({"127.0.0.1:1"}, /*has_tls=*/true);
  EXPECT_THAT(call.Run(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("without credentials")));
}

// Nobody serves there, so what comes back tells which address was called.
TEST(SelfCall, AUnixSocketNeedsNoTls) {
  SelfCall call;
  call.Connect({"127.0.0.1:1", "unix:/nonexistent/self_call_test"}, /*has_tls=*/true);
  EXPECT_THAT(call.Run(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("call of itself failed")));
}

}  // namespace
}  // namespace ridgeline::api
