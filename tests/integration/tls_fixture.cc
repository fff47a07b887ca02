#include "tests/integration/tls_fixture.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace ridgeline::integration {

client::Client ConnectWith(const std::string& address, std::optional<client::TlsOptions> tls, const std::string& name) {
  client::ClientOptions options;
  options.timeout = absl::Seconds(20);
  options.retry.max_attempts = 1;
  options.name = name;
  options.own_connection = true;
  options.tls = std::move(tls);
  return *client::Client::Create(address, options);
}

void TlsFixture::SetUp() {
  if (!support::CanMakeCertificates()) GTEST_SKIP() << "no openssl";
  folder_ = std::filesystem::temp_directory_path() / "ridgeline_tls.XXXXXX";
  ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  authority_.emplace(folder_, "authority");
  server_ = authority_->Issue("server");
}

void TlsFixture::TearDown() {
  if (!folder_.empty()) std::filesystem::remove_all(folder_);
}

std::vector<std::string> TlsFixture::ServerFlags(const support::Certificate& certificate) {
  return {absl::StrCat("--tls_certificate=", certificate.certificate), absl::StrCat("--tls_key=", certificate.key)};
}

std::vector<std::string> TlsFixture::FlagsForKnownClients(const std::vector<std::string>& more) const {
  std::vector<std::string> flags = ServerFlags(server_);
  flags.push_back(absl::StrCat("--tls_client_authority=", authority_->certificate()));
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

client::TlsOptions TlsFixture::Tls(const support::Certificate& own) const {
  return {.authority = authority_->certificate(), .certificate = own.certificate, .key = own.key};
}

client::Client TlsFixture::ConnectAs(const std::string& address, const std::string& name, const std::string& claim) const {
  return ConnectWith(address, Tls(authority_->Issue(name)), claim);
}

}  // namespace ridgeline::integration
