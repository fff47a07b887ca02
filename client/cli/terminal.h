// What standard output can show.
#pragma once

namespace ridgeline::cli {

// A terminal that is not dumb, and NO_COLOR is not set.
bool StandardOutputTakesColour();

}  // namespace ridgeline::cli
