#include "client/cpp/array.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ridgeline::client {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are little-endian in files and on the wire");

// A 16-bit IEEE-like format: one sign bit, then these.
template <int kExponentBits>
struct Narrow {
  static constexpr int kMantissaBits = 15 - kExponentBits;
  static constexpr int kMaxExponent = (1 << (kExponentBits - 1)) - 1;  // of finite values; also the bias
  static constexpr int kMinExponent = 1 - kMaxExponent;                // of normal values
  static constexpr int kExponentMask = (1 << kExponentBits) - 1;

  static double Widen(std::uint16_t bits) {
    const int mantissa = bits & ((1 << kMantissaBits) - 1);
    const int exponent = (bits >> kMantissaBits) & kExponentMask;
    double magnitude;
    if (exponent == kExponentMask) {
      magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    } else if (exponent == 0) {
      magnitude = std::ldexp(mantissa, kMinExponent - kMantissaBits);
    } else {
      magnitude = std::ldexp(mantissa + (1 << kMantissaBits), exponent - kMaxExponent - kMantissaBits);
    }
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
  }

  // To the nearest, ties to even. From double in one step: by way of float a tie could be rounded twice.
  static std::uint16_t Round(double value) {
    constexpr int kDoubleMantissaBits = 52;
    constexpr std::uint16_t kInfinity = kExponentMask << kMantissaBits;
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const auto sign = static_cast<std::uint16_t>(bits >> 63 << 15);
    if (std::isnan(value)) return sign | kInfinity | 1 << (kMantissaBits - 1);
    const int exponent = static_cast<int>(bits >> kDoubleMantissaBits & 0x7ff) - 1023;
    if (exponent > kMaxExponent) return sign | kInfinity;

    // Drop the bits below the last kept one; below the normal range the last kept bit stays where it is.
    const bool normal = exponent >= kMinExponent;
    const int shift = kDoubleMantissaBits - kMantissaBits + (normal ? 0 : kMinExponent - exponent);
    if (shift > kDoubleMantissaBits + 1) return sign;  // less than half of the smallest subnormal
    const std::uint64_t one = 1;
    const std::uint64_t significand = (bits & ((one << kDoubleMantissaBits) - 1)) | one << kDoubleMantissaBits;
    const std::uint64_t dropped = significand & ((one << shift) - 1);
    const std::uint64_t half = one << (shift - 1);
    std::uint64_t kept = significand >> shift;
    if (dropped > half || (dropped == half && (kept & 1) != 0)) ++kept;

    // The leading bit of `kept` adds one to the exponent field, and so does a carry out of the mantissa: up to infinity.
    const std::uint64_t exponent_field = normal ? exponent - kMinExponent : 0;
    return sign | static_cast<std::uint16_t>((exponent_field << kMantissaBits) + kept);
  }
};

using Float16 = Narrow<5>;
using Bfloat16 = Narrow<8>;

template <typename T>
T Load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <typename T>
void Store(char* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

double LoadElement(ElementType type, const char* from) {
  switch (type) {
    case ElementType::kFloat16:
      return Float16::Widen(Load<std::uint16_t>(from));
    case ElementType::kBfloat16:
      return Bfloat16::Widen(Load<std::uint16_t>(from));
    case ElementType::kFloat32:
      return Load<float>(from);
    case ElementType::kFloat64:
      break;
  }
  return Load<double>(from);
}

void StoreElement(ElementType type, char* to, double value) {
  switch (type) {
    case ElementType::kFloat16:
      return Store(to, Float16::Round(value));
    case ElementType::kBfloat16:
      return Store(to, Bfloat16::Round(value));
    case ElementType::kFloat32:
      return Store(to, static_cast<float>(value));
    case ElementType::kFloat64:
      return Store(to, value);
  }
}

std::int64_t NumElements(const Array& array) {
  return static_cast<std::int64_t>(array.bytes.size()) / ElementBytes(array.type);
}

double Distance(double got, double want) {
  if (got == want || (std::isnan(got) && std::isnan(want))) return 0;
  const double distance = std::abs(got - want);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

}  // namespace

absl::string_view ElementTypeName(ElementType type) {
  switch (type) {
    case ElementType::kFloat16:
      return "float16";
    case ElementType::kBfloat16:
      return "bfloat16";
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat64:
      break;
  }
  return "float64";
}

std::int64_t ElementBytes(ElementType type) {
  switch (type) {
    case ElementType::kFloat16:
    case ElementType::kBfloat16:
      return 2;
    case ElementType::kFloat32:
      return 4;
    case ElementType::kFloat64:
      break;
  }
  return 8;
}

std::optional<std::int64_t> ByteCount(absl::Span<const std::int64_t> shape, std::int64_t element_bytes) {
  std::int64_t bytes = element_bytes;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

std::string ShapeString(absl::Span<const std::int64_t> shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

double ElementAt(const Array& array, std::int64_t element_idx) {
  return LoadElement(array.type, array.bytes.data() + element_idx * ElementBytes(array.type));
}

Array ConvertTo(Array array, ElementType type) {
  if (array.type == type) return array;
  const std::int64_t num_elements = NumElements(array);
  const std::int64_t element_bytes = ElementBytes(type);
  std::string bytes(num_elements * element_bytes, '\0');
  for (std::int64_t i = 0; i < num_elements; ++i) StoreElement(type, bytes.data() + i * element_bytes, ElementAt(array, i));
  return {type, std::move(array.shape), std::move(bytes)};
}

absl::StatusOr<Difference> LargestDifference(const Array& got, const Array& want) {
  if (got.shape != want.shape) {
    return absl::InvalidArgumentError(
        absl::StrCat("shapes differ: ", ShapeString(got.shape), " against ", ShapeString(want.shape)));
  }
  Difference largest;
  const std::int64_t num_elements = NumElements(got);
  for (std::int64_t i = 0; i < num_elements; ++i) {
    const double got_i = ElementAt(got, i);
    const double want_i = ElementAt(want, i);
    const double distance = Distance(got_i, want_i);
    if (distance > largest.max_abs) largest = {distance, i, got_i, want_i};
  }
  return largest;
}

}  // namespace ridgeline::client
