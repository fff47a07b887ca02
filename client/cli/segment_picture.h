// The allocator's segments as lines of a terminal.
#pragma once

#include <string>
#include <vector>

#include "ridgeline/v1/memory.pb.h"

namespace ridgeline::cli {

// A line for each of the largest segments, in order of address, all at one scale, and a legend; nothing without segments.
std::vector<std::string> SegmentPicture(const v1::MemorySnapshot& snapshot);

}  // namespace ridgeline::cli
