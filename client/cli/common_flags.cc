#include "client/cli/common_flags.h"

#include "absl/flags/flag.h"

ABSL_FLAG(std::string, address, "127.0.0.1:50051", "The daemon: host:port or unix:/path/to.sock.");
ABSL_FLAG(std::string, format, "table", "table for people, json or csv for programs.");
ABSL_FLAG(absl::Duration, timeout, absl::Minutes(5), "For one call to the daemon, its retries included.");
ABSL_FLAG(std::string, client_name, "",
          "Who calls: whose KV caches, turns and quotas these are, unless a certificate says it. Empty: nobody in particular.");
ABSL_FLAG(std::string, session, "",
          "Routing token of a KV cache: a proxy in front of several daemons then finds the one that has it.");
ABSL_FLAG(std::string, tls_authority, "",
          "PEM file with the authorities of the daemon's certificate. It or --tls_certificate: the connection has TLS.");
ABSL_FLAG(std::string, tls_certificate, "", "PEM file with the certificate to show to the daemon.");
ABSL_FLAG(std::string, tls_key, "", "PEM file with the key of --tls_certificate.");

namespace ridgeline::cli {

const std::vector<std::string>& CommonFlags() {
  static const auto* const kFlags = new std::vector<std::string>{"address", "format",        "timeout",         "client_name",
                                                                 "session", "tls_authority", "tls_certificate", "tls_key"};
  return *kFlags;
}

std::optional<client::TlsOptions> ReadTlsFlags() {
  client::TlsOptions tls = {.authority = absl::GetFlag(FLAGS_tls_authority),
                            .certificate = absl::GetFlag(FLAGS_tls_certificate),
                            .key = absl::GetFlag(FLAGS_tls_key)};
  if (tls.authority.empty() && tls.certificate.empty()) return std::nullopt;
  return tls;
}

}  // namespace ridgeline::cli
