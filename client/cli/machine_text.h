// Values as programs read them, shared by JSON and CSV.
#pragma once

#include <string>

namespace ridgeline::cli {

// The shortest text that reads back to the same number; empty when it is not finite.
std::string ShortestText(double number);

}  // namespace ridgeline::cli
