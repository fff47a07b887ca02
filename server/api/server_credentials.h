// TLS on the gRPC port: files, reloaded as they change, and the names in the certificates of those who call.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace grpc {
class ServerContextBase;
class ServerCredentials;
}  // namespace grpc

namespace ridgeline::api {

// Paths of PEM files.
struct TlsFiles {
  std::string certificate = {};       // the server's, with what leads to its authority; empty: no TLS
  std::string key = {};               // of `certificate`
  std::string client_authority = {};  // callers must have a certificate that leads to one of these; empty: anybody may call
};

// Without `certificate`: those of plain text. Connections made from a second or so after the files have changed see the new
// ones; earlier ones stay as they are. A certificate and a key that don't belong together serve nobody until they do. Errors:
// INVALID_ARGUMENT naming the file that can't be read or used.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(const TlsFiles& files);

// The common name in the certificate that the caller has proven to have, or the first of its other names; empty: it has none.
// Nothing: the caller showed no certificate.
std::optional<std::string> NameInCertificate(const grpc::ServerContextBase& context);

}  // namespace ridgeline::api
