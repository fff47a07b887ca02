#include "client/cli/terminal.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/string_view.h"

namespace ridgeline::cli {

bool StandardOutputTakesColour() {
  const char* const no_colour = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  const bool refused = no_colour != nullptr && *no_colour != '\0';
  const bool dumb = terminal == nullptr || absl::string_view(terminal) == "dumb";
  return isatty(STDOUT_FILENO) != 0 && !refused && !dumb;
}

}  // namespace ridgeline::cli
