#include "tests/support/source_folder.h"

#include <cstdlib>
#include <filesystem>

namespace ridgeline::support {

std::filesystem::path SourceFolder() {
  const char* const moved = std::getenv("RIDGELINE_SOURCE_DIR");
  return moved != nullptr ? moved : RIDGELINE_SOURCE_DIR;
}

}  // namespace ridgeline::support
