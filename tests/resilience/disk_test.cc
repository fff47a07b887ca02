// Disks that take nothing more: the daemon serves all the same.
#include <signal.h>
#include <sys/resource.h>

#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/integration/random_attend.h"
#include "tests/support/daemon.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::resilience {
namespace {

using support::Daemon;
using support::IsOk;
using ::testing::HasSubstr;

void ExpectServes(Daemon& daemon) {
  EXPECT_THAT(integration::Connect(daemon.unix_address()).Attend(RandomAttend(10)), IsOk());
  daemon.process().Signal(SIGTERM);
  EXPECT_EQ(daemon.process().Wait(absl::Seconds(40)), 0);
}

TEST(DiskTest, PeaksThatCanNotBeKeptAreMeasuredAndServed) {
  Daemon daemon({"--roofline_cache=/dev/full/ridgeline/roofline"});
  EXPECT_THAT(daemon.process().standard_error(), HasSubstr("msg=\"roofline not kept\""));
  EXPECT_GT(integration::Connect(daemon.unix_address()).GetRoofline()->bytes_per_second(), 0);
  ExpectServes(daemon);
}

TEST(DiskTest, ALogThatCanNotGrowEndsNothing) {
  constexpr rlim_t kLogBytes = 8 << 10;
  const support::FileSizeLimit limit(kLogBytes);
  Daemon daemon({"--log_level=debug"});
  const client::Client client = integration::Connect(daemon.unix_address());
  for (int i = 0; i < 200; ++i) ASSERT_THAT(client.GetLoad(), IsOk()) << i;
  EXPECT_EQ(daemon.process().standard_error().size(), kLogBytes) << "the log did not come to its limit";
  ExpectServes(daemon);
}

}  // namespace
}  // namespace ridgeline::resilience
