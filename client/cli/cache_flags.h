// The flags of more than one `ridgeline cache` command.
#pragma once

#include <string>

#include "absl/flags/declare.h"
#include "absl/status/statusor.h"
#include "client/cli/cache_names.h"

ABSL_DECLARE_FLAG(std::string, name);

namespace ridgeline::cli {

// --name; a usage error if it is missing, or of the other kind.
absl::StatusOr<CacheName> NameFromFlags();
absl::StatusOr<CacheName> CacheFromFlags();
absl::StatusOr<CacheName> SequenceFromFlags();

}  // namespace ridgeline::cli
