// Element types of tensors, as plain values that host and device code share.
#pragma once

#include <cstdint>

namespace ridgeline::kernels {

enum class DataType : std::uint8_t { kFloat32, kFloat16, kBFloat16, kFloat8E4M3, kFloat8E5M2, kInt32, kInt64, kUint8 };

constexpr std::int64_t ElementBytes(DataType type) {
  switch (type) {
    case DataType::kFloat32:
    case DataType::kInt32:
      return 4;
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return 2;
    case DataType::kFloat8E4M3:
    case DataType::kFloat8E5M2:
    case DataType::kUint8:
      return 1;
    case DataType::kInt64:
      return 8;
  }
  return 0;
}

// The name used in reports, metrics and error messages, e.g. "bfloat16".
constexpr const char* Name(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "float32";
    case DataType::kFloat16:
      return "float16";
    case DataType::kBFloat16:
      return "bfloat16";
    case DataType::kFloat8E4M3:
      return "float8_e4m3";
    case DataType::kFloat8E5M2:
      return "float8_e5m2";
    case DataType::kInt32:
      return "int32";
    case DataType::kInt64:
      return "int64";
    case DataType::kUint8:
      return "uint8";
  }
  return "unknown";
}

}  // namespace ridgeline::kernels
