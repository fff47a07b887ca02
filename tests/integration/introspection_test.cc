// What the daemon tells tools about itself beside its own services: reflection and, if asked to, channelz.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/raw_call.h"
#include "tests/support/daemon.h"

namespace ridgeline {
namespace {

using support::Daemon;
using ::testing::HasSubstr;

constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
constexpr char kChannelz[] = "/grpc.channelz.v1.Channelz/GetServers";

TEST(ReflectionTest, ListsEveryService) {
  Daemon daemon;
  // ServerReflectionRequest{list_services: "*"}: field 7, one byte.
  const RawAnswer answer = CallRaw(daemon.tcp_address(), kReflection, "\x3a\x01*");
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  for (const char* service : {"ridgeline.v1.AttentionService", "ridgeline.v1.BenchmarkService", "ridgeline.v1.DeviceService",
                              "ridgeline.v1.FusedService", "ridgeline.v1.KvCacheService", "grpc.health.v1.Health",
                              "grpc.reflection.v1alpha.ServerReflection"}) {
    EXPECT_THAT(answer.response, HasSubstr(service));
  }
}

TEST(ReflectionTest, HasTheDefinitionOfAMethod) {
  Daemon daemon;
  // ServerReflectionRequest{file_containing_symbol: ...}: field 4, 36 bytes.
  const RawAnswer answer = CallRaw(daemon.unix_address(), kReflection, "\x22\x24ridgeline.v1.AttentionService.Attend");
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_THAT(answer.response, HasSubstr("ridgeline/v1/attention.proto"));
  EXPECT_THAT(answer.response, HasSubstr("AttendRequest"));
}

TEST(ChannelzTest, AnswersWhenItsFlagIsSet) {
  Daemon daemon({"--channelz"});
  const RawAnswer answer = CallRaw(daemon.tcp_address(), kChannelz, "");
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_FALSE(answer.response.empty()) << "it lists at least this server";
}

TEST(ChannelzTest, IsUnimplementedWithoutIt) {
  Daemon daemon;
  EXPECT_EQ(CallRaw(daemon.tcp_address(), kChannelz, "").status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace ridgeline
