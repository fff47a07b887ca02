#include "client/cli/progress.h"

#include <unistd.h>

#include <iostream>

namespace ridgeline::cli {
namespace {

constexpr char kClearLine[] = "\r\x1b[K";

}  // namespace

Progress::Progress() : on_terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (on_terminal_) std::cerr << kClearLine << std::flush;
}

void Progress::Show(absl::string_view text) {
  if (on_terminal_) std::cerr << kClearLine << text << std::flush;
}

}  // namespace ridgeline::cli
