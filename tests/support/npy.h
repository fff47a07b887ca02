// Reads the .npy files of tests/data: little-endian float32 or float64 in C order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ridgeline::support {

struct NpyArray {
  std::vector<std::int64_t> shape;
  std::vector<double> elements;  // float32 widened, exactly
};

// Returns an empty string, or what is wrong with the file.
std::string ReadNpy(const std::string& path, NpyArray& array);

}  // namespace ridgeline::support
