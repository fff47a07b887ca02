// Certificates for a daemon and its callers, and connections made with them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "gtest/gtest.h"
#include "tests/support/certificates.h"

namespace ridgeline::integration {

// A connection of its own, made with the files as they are; never retries.
client::Client ConnectWith(const std::string& address, std::optional<client::TlsOptions> tls,
                           const std::string& name = "claimed");

// Skips its tests where there is nothing to make certificates with.
class TlsFixture : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  static std::vector<std::string> ServerFlags(const support::Certificate& certificate);
  // For a daemon that serves only callers with certificates of the authority; `more` flags after them.
  std::vector<std::string> FlagsForKnownClients(const std::vector<std::string>& more = {}) const;

  client::TlsOptions Tls(const support::Certificate& own = {}) const;
  // Whose certificate says `name`, and who claims to be `claim`.
  client::Client ConnectAs(const std::string& address, const std::string& name, const std::string& claim = "claimed") const;

  std::string folder_;
  std::optional<support::CertificateAuthority> authority_;
  support::Certificate server_;
};

}  // namespace ridgeline::integration
