#include "tests/support/npy.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace ridgeline::support {
namespace {

constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);  // format version 1.0
constexpr std::size_t kPreambleBytes = 10;                  // magic and two bytes of header length

// The numbers in the header's "(1, 129, 9, 64)".
std::vector<std::int64_t> ParseShape(const std::string& header) {
  std::vector<std::int64_t> shape;
  const char* position = header.c_str() + header.find('(') + 1;
  for (char* end = nullptr; *position != ')' && *position != '\0'; position = end) {
    shape.push_back(std::strtoll(position, &end, 10));
    if (end == position) return {};
    while (*end == ',' || *end == ' ') ++end;
  }
  return shape;
}

template <typename T>
std::vector<double> Widen(std::string_view bytes) {
  std::vector<T> narrow(bytes.size() / sizeof(T));
  std::memcpy(narrow.data(), bytes.data(), bytes.size());
  return {narrow.begin(), narrow.end()};
}

}  // namespace

std::string ReadNpy(const std::string& path, NpyArray& array) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return path + ": can't be read";
  const std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!content.starts_with(kMagic) || content.size() < kPreambleBytes) return path + ": isn't a .npy file of version 1.0";
  const std::size_t header_bytes = static_cast<unsigned char>(content[8]) + 256 * static_cast<unsigned char>(content[9]);
  const std::string header = content.substr(kPreambleBytes, header_bytes);
  if (header.find("'fortran_order': False") == std::string::npos) return path + ": isn't in C order";
  const bool is_float32 = header.find("'<f4'") != std::string::npos;
  if (!is_float32 && header.find("'<f8'") == std::string::npos) return path + ": is neither float32 nor float64";

  const std::string_view data = std::string_view(content).substr(std::min(content.size(), kPreambleBytes + header_bytes));
  array.shape = ParseShape(header);
  std::size_t want_bytes = is_float32 ? sizeof(float) : sizeof(double);
  for (const std::int64_t extent : array.shape) want_bytes *= extent;
  if (data.size() != want_bytes) {
    return path + ": has " + std::to_string(data.size()) + " bytes of data; its shape needs " + std::to_string(want_bytes);
  }
  array.elements = is_float32 ? Widen<float>(data) : Widen<double>(data);
  return "";
}

}  // namespace ridgeline::support
