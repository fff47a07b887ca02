// What the log never has, at its most talkative: keys, values of metadata and of tensors.
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "ridgeline/v1/kv_cache.grpc.pb.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/integration/tls_fixture.h"
#include "tests/support/certificates.h"
#include "tests/support/daemon.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::integration {
namespace {

using support::Certificate;
using support::Daemon;
using support::IsOk;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kCredential[] = "Bearer-of-a-secret-0451";
constexpr char kSession[] = "0123456789abcdef.xsecret-of-a-session-0452";
constexpr char kElements[] = "sixteen secrets!";  // the bytes of four

// A call that fails, with all that a client may send along.
void CallWithSecrets(const std::string& address) {
  const auto stub = v1::KvCacheService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.AddMetadata("authorization", kCredential);
  context.AddMetadata("cookie", kCredential);
  context.AddMetadata("x-ridgeline-session", kSession);
  context.AddMetadata("key-bin", kCredential);
  v1::KvCache cache;
  v1::GetKvCacheRequest request;
  request.set_name("kvCaches/chat");
  EXPECT_EQ(stub->GetKvCache(&context, request, &cache).error_code(), grpc::StatusCode::NOT_FOUND);
}

void ExpectHasNoLineOf(const std::string& log, const std::string& key_path) {
  std::ifstream key(key_path);
  int num_lines = 0;
  for (std::string line; std::getline(key, line);) {
    if (absl::StrContains(line, "PRIVATE KEY")) continue;
    ++num_lines;
    EXPECT_THAT(log, Not(HasSubstr(line))) << key_path;
  }
  EXPECT_GT(num_lines, 0);
}

class SecretsTest : public TlsFixture, public ::testing::WithParamInterface<const char*> {};

TEST_P(SecretsTest, AreNotInTheLog) {
  Daemon daemon(FlagsForKnownClients({"--log_level=debug", absl::StrCat("--log_format=", GetParam())}));
  const Certificate own = authority_->Issue("alice");
  const client::Client alice = ConnectWith(daemon.tcp_address(), Tls(own));
  ASSERT_THAT(alice.CreateKvCache(CacheRequest("chat", 4)), IsOk());
  v1::AttendRequest attend = DenseRequest(RandomTokens(3, 1), 1, 7);
  attend.mutable_query()->set_inline_data(kElements);  // too short: the error is about them
  EXPECT_FALSE(alice.Attend(attend).ok());
  CallWithSecrets(daemon.unix_address());
  // Handshakes that fail have lines of gRPC's own.
  const support::CertificateAuthority stranger(folder_, "stranger");
  EXPECT_FALSE(ConnectWith(daemon.tcp_address(), Tls(stranger.Issue("alice"))).GetLoad().ok());

  const std::string log = daemon.process().standard_error();
  for (const char* const method : {"CreateKvCache", "GetKvCache", "Attend"}) EXPECT_THAT(log, HasSubstr(method));
  for (const char* const secret : {kCredential, kSession, "secret-of-a-session", kElements, "PRIVATE KEY"}) {
    EXPECT_THAT(log, Not(HasSubstr(secret)));
  }
  ExpectHasNoLineOf(log, server_.key);
  ExpectHasNoLineOf(log, own.key);
}

INSTANTIATE_TEST_SUITE_P(Formats, SecretsTest, ::testing::Values("text", "json"));

}  // namespace
}  // namespace ridgeline::integration
