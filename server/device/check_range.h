// Limits of the options that devices are made with.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ridgeline::device {

// INVALID_ARGUMENT, naming the option, unless min <= value <= max.
inline absl::Status CheckRange(const char* option, std::int64_t value, std::int64_t min, std::int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(option, " is ", value, "; allowed: ", min, " to ", max));
}

}  // namespace ridgeline::device
