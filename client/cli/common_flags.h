// The flags of every command.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"

ABSL_DECLARE_FLAG(std::string, address);
ABSL_DECLARE_FLAG(std::string, format);
ABSL_DECLARE_FLAG(absl::Duration, timeout);
ABSL_DECLARE_FLAG(std::string, client_name);
ABSL_DECLARE_FLAG(std::string, session);
ABSL_DECLARE_FLAG(std::string, tls_authority);
ABSL_DECLARE_FLAG(std::string, tls_certificate);
ABSL_DECLARE_FLAG(std::string, tls_key);

namespace ridgeline::cli {

// Their names, in the order of the help.
const std::vector<std::string>& CommonFlags();

// What the flags about TLS say; nothing: no TLS.
std::optional<client::TlsOptions> ReadTlsFlags();

}  // namespace ridgeline::cli
