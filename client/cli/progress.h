// One line on stderr that says what is going on, rewritten in place; silent unless stderr is a terminal.
#pragma once

#include "absl/strings/string_view.h"

namespace ridgeline::cli {

class Progress {
 public:
  Progress();
  // Clears the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(absl::string_view text);

 private:
  const bool on_terminal_;
};

}  // namespace ridgeline::cli
