// A dense array in host memory, as it lies in a .npy file and on the wire: little-endian, row-major.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ridgeline::client {

enum class ElementType { kFloat16, kBfloat16, kFloat32, kFloat64 };

// "float16", "bfloat16", "float32", "float64".
absl::string_view ElementTypeName(ElementType type);
std::int64_t ElementBytes(ElementType type);

struct Array {
  ElementType type = ElementType::kFloat32;
  std::vector<std::int64_t> shape;  // outermost first; empty: a scalar
  std::string bytes;                // product(shape) * ElementBytes(type), exactly
};

// product(shape) * element_bytes; nothing when an extent is negative or the product leaves int64.
std::optional<std::int64_t> ByteCount(absl::Span<const std::int64_t> shape, std::int64_t element_bytes);

// "[1, 129, 9, 64]"
std::string ShapeString(absl::Span<const std::int64_t> shape);

// The element at a flat index, widened exactly.
double ElementAt(const Array& array, std::int64_t element_idx);

// The same values in another type: each rounded once, to the nearest, ties to even; too large ones become infinities.
Array ConvertTo(Array array, ElementType type);

// How far two arrays are apart.
struct Difference {
  double max_abs = 0;  // infinite where one has a NaN or an infinity and the other has not; never NaN
  std::int64_t element_idx = 0;
  double got = 0;
  double want = 0;
};

// INVALID_ARGUMENT when the shapes differ; types may. Equal infinities, and NaN beside NaN, do not differ.
absl::StatusOr<Difference> LargestDifference(const Array& got, const Array& want);

}  // namespace ridgeline::client
