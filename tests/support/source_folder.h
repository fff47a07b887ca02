// Where the project's sources are, for tests that read them.
#pragma once

#include <filesystem>

namespace ridgeline::support {

// RIDGELINE_SOURCE_DIR from the environment, for a program that was moved; else where it was built.
std::filesystem::path SourceFolder();

}  // namespace ridgeline::support
