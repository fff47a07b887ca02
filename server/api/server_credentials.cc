#include "server/api/server_credentials.h"

#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/auth_context.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/server_context.h"
#include "server/base/status_macros.h"

namespace ridgeline::api {
namespace {

constexpr unsigned kReloadSeconds = 1;

absl::StatusOr<std::string> ReadPem(const std::string& path, absl::string_view label) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  if (absl::StrContains(text.str(), label)) return text.str();
  return absl::InvalidArgumentError(absl::StrCat(path, " cannot be read, or has no PEM block that says ", label));
}

// gRPC says of files that it watches only in its log that they can't be used; of the same bytes handed over, by not listening.
absl::Status CheckUsable(const TlsFiles& files) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::string certificate, ReadPem(files.certificate, "BEGIN CERTIFICATE"));
  RIDGELINE_ASSIGN_OR_RETURN(const std::string key, ReadPem(files.key, "PRIVATE KEY"));
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({key, certificate});
  if (!files.client_authority.empty()) {
    RIDGELINE_ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem(files.client_authority, "BEGIN CERTIFICATE"));
    options.client_certificate_request = GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
  }
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server != nullptr && port != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(files.certificate, " and ", files.key, " do not belong together, or one of them cannot be used"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const TlsFiles& files) {
  if (files.certificate.empty()) return grpc::InsecureServerCredentials();
  RIDGELINE_RETURN_IF_ERROR(CheckUsable(files));
  grpc::experimental::TlsServerCredentialsOptions options(std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      files.key, files.certificate, files.client_authority, kReloadSeconds));
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  if (!files.client_authority.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

std::optional<std::string> NameInCertificate(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> authentication = context.auth_context();
  if (authentication == nullptr) return std::nullopt;
  if (authentication->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME).empty()) return std::nullopt;
  std::vector<grpc::string_ref> names = authentication->FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
  if (names.empty()) names = authentication->GetPeerIdentity();
  if (names.empty()) return "";
  // A certificate may have any bytes there; a message's string may not.
  return absl::Utf8SafeCHexEscape(absl::string_view(names.front().data(), names.front().size()));
}

}  // namespace ridgeline::api
