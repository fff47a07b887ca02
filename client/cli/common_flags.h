// The flags of every command.
#pragma once

#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/time/time.h"

ABSL_DECLARE_FLAG(std::string, address);
ABSL_DECLARE_FLAG(std::string, format);
ABSL_DECLARE_FLAG(absl::Duration, timeout);
ABSL_DECLARE_FLAG(std::string, client_name);
ABSL_DECLARE_FLAG(std::string, session);

namespace ridgeline::cli {

// Their names, in the order of the help.
const std::vector<std::string>& CommonFlags();

}  // namespace ridgeline::cli
