// Who may connect, and as whom: TLS, certificates of callers, their reload, and no plain text where other machines hear it.
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "client/cpp/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/integration/tls_fixture.h"
#include "tests/support/certificates.h"
#include "tests/support/daemon.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::integration {
namespace {

using client::Client;
using client::ErrorReason;
using support::Certificate;
using support::CertificateAuthority;
using support::Daemon;
using support::IsOk;
using support::Process;
using support::StatusIs;
using ::testing::HasSubstr;

TEST(ReachTest, PlainTextWhereOtherMachinesHearItHasToBeAskedFor) {
  const std::vector<std::vector<std::string>> refused = {{"--listen=0.0.0.0:0"},
                                                         {"--listen=[::]:0"},
                                                         {"--listen=127.0.0.1:0,0.0.0.0:0"},
                                                         {"--listen=127.0.0.1.example:0"},
                                                         {"--metrics_listen=0.0.0.0:0"}};
  for (const std::vector<std::string>& flags : refused) {
    std::vector<std::string> command = {support::DaemonProgram(), "--listen=127.0.0.1:0", "--metrics_listen=", "--device=cpu"};
    command.insert(command.end(), flags.begin(), flags.end());
    Process process(command);
    EXPECT_EQ(process.Wait(absl::Seconds(20)), 1) << flags[0];
    EXPECT_THAT(process.standard_error(), HasSubstr("--allow_plaintext")) << flags[0];
  }
  Daemon daemon({"--listen=0.0.0.0:0", "--metrics_listen=0.0.0.0:0", "--allow_plaintext"});
  EXPECT_THAT(daemon.tcp_address(), HasSubstr("0.0.0.0:"));
}

using TlsTest = TlsFixture;

TEST_F(TlsTest, WithoutItNothingIsAnswered) {
  Daemon daemon(ServerFlags(server_));
  EXPECT_THAT(ConnectWith(daemon.tcp_address(), Tls()).GetDevice(), IsOk());
  EXPECT_THAT(ConnectWith(daemon.tcp_address(), std::nullopt).GetDevice(), StatusIs(absl::StatusCode::kUnavailable));
  const CertificateAuthority other(folder_, "other");
  EXPECT_THAT(ConnectWith(daemon.tcp_address(), client::TlsOptions{.authority = other.certificate()}).GetDevice(),
              StatusIs(absl::StatusCode::kUnavailable))
      << "the client does not know the server's authority";
  EXPECT_THAT(ConnectWith(daemon.unix_address(), std::nullopt).GetDevice(), IsOk()) << "its file says who may";
}

TEST_F(TlsTest, CallersWithoutACertificateOfTheAuthorityAreNotAnswered) {
  Daemon daemon(FlagsForKnownClients());
  EXPECT_THAT(ConnectAs(daemon.tcp_address(), "alice").GetDevice(), IsOk());
  EXPECT_THAT(ConnectWith(daemon.tcp_address(), Tls()).GetDevice(), StatusIs(absl::StatusCode::kUnavailable));
  const CertificateAuthority other(folder_, "other");
  EXPECT_THAT(ConnectWith(daemon.tcp_address(), Tls(other.Issue("alice"))).GetDevice(),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(TlsTest, TheNameIsTheCertificates) {
  Daemon daemon(FlagsForKnownClients({"--max_kv_caches_per_client=1"}));
  const Client alice = ConnectAs(daemon.tcp_address(), "alice", "bob");
  const auto cache = alice.CreateKvCache(CacheRequest("chat", 4));
  ASSERT_THAT(cache, IsOk());
  EXPECT_EQ(cache->client(), "alice") << "whatever x-ridgeline-client claims";
  // Another claim is no way around a quota.
  const Client again = ConnectAs(daemon.tcp_address(), "alice", "carol");
  EXPECT_EQ(ErrorReason(again.CreateKvCache(CacheRequest("more", 4)).status()), "QUOTA_EXCEEDED");
  const Client bob = ConnectAs(daemon.tcp_address(), "bob", "alice");
  EXPECT_THAT(bob.CreateKvCache(CacheRequest("bobs", 4)), IsOk());
}

TEST_F(TlsTest, NewCertificatesAreTakenUpWithoutARestart) {
  // As Kubernetes has secrets: a link to a folder is replaced, so certificate and key change at once.
  const std::string link = folder_ + "/current";
  const auto point_to = [&](const std::string& folder, const Certificate& certificate) {
    std::filesystem::create_directory(folder);
    std::filesystem::copy_file(certificate.certificate, folder + "/tls.crt");
    std::filesystem::copy_file(certificate.key, folder + "/tls.key");
    std::filesystem::create_directory_symlink(folder, link + ".new");
    std::filesystem::rename(link + ".new", link);
  };
  point_to(folder_ + "/1", server_);
  Daemon daemon(ServerFlags({.certificate = link + "/tls.crt", .key = link + "/tls.key"}));
  const Client before = ConnectWith(daemon.tcp_address(), Tls());
  ASSERT_THAT(before.GetDevice(), IsOk());

  const CertificateAuthority next(folder_, "next");
  point_to(folder_ + "/2", next.Issue("server"));
  const client::TlsOptions trusts_next = {.authority = next.certificate()};
  const absl::Time end = absl::Now() + absl::Seconds(60);
  while (!ConnectWith(daemon.tcp_address(), trusts_next).GetDevice().ok() && absl::Now() < end) {
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_THAT(ConnectWith(daemon.tcp_address(), trusts_next).GetDevice(), IsOk());
  EXPECT_THAT(ConnectWith(daemon.tcp_address(), Tls()).GetDevice(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(before.GetDevice(), IsOk()) << "a connection outlives its certificate";
}

TEST_F(TlsTest, FilesThatCannotBeUsedEndTheStart) {
  const Certificate other = authority_->Issue("other");
  const std::string garbage = folder_ + "/garbage";
  std::ofstream(garbage) << "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {ServerFlags({.certificate = server_.certificate, .key = other.key}), "do not belong together"},
      {ServerFlags({.certificate = garbage, .key = server_.key}), garbage},
      {ServerFlags({.certificate = folder_ + "/none", .key = server_.key}), "/none"},
      {ServerFlags({.certificate = server_.certificate, .key = server_.certificate}), "PRIVATE KEY"},
      {{absl::StrCat("--tls_certificate=", server_.certificate)}, "--tls_key"},
      {{absl::StrCat("--tls_client_authority=", authority_->certificate())}, "--tls_client_authority"}};
  for (const auto& [flags, named] : cases) {
    std::vector<std::string> command = {support::DaemonProgram(), "--listen=127.0.0.1:0", "--metrics_listen=", "--device=cpu",
                                        support::SharedRooflineFlag()};
    command.insert(command.end(), flags.begin(), flags.end());
    Process process(command);
    EXPECT_EQ(process.Wait(absl::Seconds(60)), 1) << named;
    EXPECT_THAT(process.standard_error(), HasSubstr(named));
    EXPECT_THAT(process.standard_error(), ::testing::Not(HasSubstr("BEGIN PRIVATE"))) << "a key is nothing for the log";
  }
}

}  // namespace
}  // namespace ridgeline::integration
