// Quantities in words, for messages that people read.
#pragma once

#include <cstdint>
#include <string>

namespace ridgeline::base {

// "512 bytes", "1.5 GiB (1610612736 bytes)": a figure to grasp and the exact one.
std::string FormatBytes(std::int64_t bytes);

}  // namespace ridgeline::base
