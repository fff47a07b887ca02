// A picture of the allocator's memory, drawn to scale.
//
//   ████████▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓·····|······························
//   █ allocated 1.20 GiB   ▓ reserved 3.10 GiB   | peak 3.90 GiB   · limit 8.00 GiB
#pragma once

#include <string>
#include <vector>

#include "ridgeline/v1/device.pb.h"

namespace ridgeline::cli {

// The bar and its legend, one line each.
std::vector<std::string> MemoryBar(const v1::MemoryStats& stats);

}  // namespace ridgeline::cli
