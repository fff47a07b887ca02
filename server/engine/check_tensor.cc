#include "server/engine/check_tensor.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "kernels/common/saturating.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::engine {
namespace {

using base::InvalidField;
using base::Unsupported;
using kernels::DataType;
using kernels::ElementBytes;
using kernels::SaturatingMultiply;

constexpr std::int64_t kOverflow = std::numeric_limits<std::int64_t>::max();

absl::Status CheckInlineData(const char* field, const InlineData& data, std::int64_t needed_bytes, DataType type,
                             const Shape& shape) {
  if (data.size_bytes == needed_bytes) return absl::OkStatus();
  return InvalidField(
      absl::StrCat(field, ".inline_data"),
      absl::StrCat("has ", data.size_bytes, " bytes; shape ", FormatShape(shape), " of ", Name(type), " takes ", needed_bytes));
}

absl::Status CheckRandomFill(const char* field, const RandomFill& random) {
  if (!IsFiniteFloat(random.mean)) {
    return InvalidField(absl::StrCat(field, ".random.mean"), absl::StrCat("is ", random.mean, "; a finite float32 is needed"));
  }
  if (!IsFiniteFloat(random.standard_deviation) || random.standard_deviation < 0) {
    return InvalidField(absl::StrCat(field, ".random.standard_deviation"),
                        absl::StrCat("is ", random.standard_deviation, "; a finite float32 of at least 0 is needed"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string FormatShape(const Shape& shape) {
  constexpr std::size_t kMaxShown = 8;
  const auto shown = absl::MakeConstSpan(shape).subspan(0, kMaxShown);
  return absl::StrCat("[", absl::StrJoin(shown, ", "), shape.size() > kMaxShown ? ", ...]" : "]");
}

bool IsFiniteFloat(double value) { return std::isfinite(static_cast<float>(value)); }

absl::StatusOr<DataType> CheckPresent(const char* field, const std::optional<Tensor>& tensor) {
  if (!tensor.has_value()) return InvalidField(field, "is missing");
  if (!tensor->data_type.has_value()) return InvalidField(absl::StrCat(field, ".data_type"), "is unspecified or unknown");
  return *tensor->data_type;
}

absl::Status CheckFloatType(const std::string& field, DataType type) {
  switch (type) {
    case DataType::kFloat32:
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return absl::OkStatus();
    case DataType::kFloat8E4M3:
    case DataType::kFloat8E5M2:
      return Unsupported(field, absl::StrCat(Name(type), " is not built into this server; float32, float16 and bfloat16 are"));
    case DataType::kInt32:
    case DataType::kInt64:
    case DataType::kUint8:
      break;
  }
  return InvalidField(field, absl::StrCat("is ", Name(type), "; float32, float16 and bfloat16 are allowed"));
}

absl::StatusOr<std::int64_t> CountElements(const char* field, DataType type, const Shape& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) {
      return InvalidField(absl::StrCat(field, ".shape"), absl::StrCat("has a negative extent: ", FormatShape(shape)));
    }
    elements = SaturatingMultiply({elements, extent});
  }
  if (SaturatingMultiply({elements, ElementBytes(type)}) == kOverflow) {
    return InvalidField(absl::StrCat(field, ".shape"), absl::StrCat("overflows: ", FormatShape(shape), " of ", Name(type)));
  }
  return elements;
}

absl::StatusOr<TensorSource> TakeSource(const char* field, DataType type, std::int64_t elements, Tensor& tensor) {
  TensorSource source{.data_type = type, .elements = elements, .storage = {}};
  if (auto* data = std::get_if<InlineData>(&tensor.storage)) {
    RIDGELINE_RETURN_IF_ERROR(CheckInlineData(field, *data, source.size_bytes(), type, tensor.shape));
    source.storage = std::move(*data);
    return source;
  }
  if (const auto* random = std::get_if<RandomFill>(&tensor.storage)) {
    RIDGELINE_RETURN_IF_ERROR(CheckRandomFill(field, *random));
    source.storage = *random;
    return source;
  }
  if (std::holds_alternative<SharedMemorySlice>(tensor.storage)) {
    return Unsupported(absl::StrCat(field, ".shared_memory"), "this server has no SharedMemoryService; send inline_data");
  }
  return InvalidField(field, "has no storage; inline_data or random is needed");
}

std::vector<float> InlineValues(const TensorSource& source) {
  const auto* data = std::get_if<InlineData>(&source.storage);
  if (data == nullptr) return {};
  std::vector<float> values(source.elements);
  auto* destination = reinterpret_cast<std::byte*>(values.data());
  for (const device::HostSlice& slice : data->slices) {
    if (slice.size_bytes == 0) continue;
    std::memcpy(destination, slice.data, slice.size_bytes);
    destination += slice.size_bytes;
  }
  return values;
}

}  // namespace ridgeline::engine
