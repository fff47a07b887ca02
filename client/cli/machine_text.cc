#include "client/cli/machine_text.h"

#include <charconv>
#include <cmath>

namespace ridgeline::cli {

std::string ShortestText(double number) {
  if (!std::isfinite(number)) return "";
  char text[32];  // the longest takes 24
  const std::to_chars_result result = std::to_chars(text, text + sizeof(text), number);
  return std::string(text, result.ptr);
}

}  // namespace ridgeline::cli
