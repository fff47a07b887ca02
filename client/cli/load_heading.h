// What a load was asked for, as its result repeats it.
#pragma once

#include <string>

#include "client/cli/document.h"
#include "client/cli/load_flags.h"

namespace ridgeline::cli {

// For people, in three lines.
std::string HeadingOf(const Load& load, const std::string& device);

// For programs: the same fields from every load, null where they don't apply.
Section LoadSection(const Load& load, const std::string& device);

}  // namespace ridgeline::cli
