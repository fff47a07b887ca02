// Starting a thread, with a status where the system refuses.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace ridgeline::device {

// `name` is what `top -H` and debuggers show; 15 characters of it. Errors: RESOURCE_EXHAUSTED.
absl::StatusOr<std::thread> StartThread(const std::string& name, std::function<void()> body);

}  // namespace ridgeline::device
