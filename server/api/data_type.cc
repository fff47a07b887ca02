#include "server/api/data_type.h"

#include <array>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "server/base/error.h"

namespace ridgeline::api {
namespace {

struct Pair {
  v1::DataType message;
  kernels::DataType type;
};

constexpr std::array<Pair, 8> kPairs = {{{v1::DATA_TYPE_FLOAT32, kernels::DataType::kFloat32},
                                         {v1::DATA_TYPE_FLOAT16, kernels::DataType::kFloat16},
                                         {v1::DATA_TYPE_BFLOAT16, kernels::DataType::kBFloat16},
                                         {v1::DATA_TYPE_FLOAT8_E4M3, kernels::DataType::kFloat8E4M3},
                                         {v1::DATA_TYPE_FLOAT8_E5M2, kernels::DataType::kFloat8E5M2},
                                         {v1::DATA_TYPE_INT32, kernels::DataType::kInt32},
                                         {v1::DATA_TYPE_INT64, kernels::DataType::kInt64},
                                         {v1::DATA_TYPE_UINT8, kernels::DataType::kUint8}}};
static_assert(kPairs.size() + 1 == v1::DataType_ARRAYSIZE, "every type of the contract has its row");

}  // namespace

v1::DataType ToMessage(kernels::DataType type) {
  for (const Pair& pair : kPairs) {
    if (pair.type == type) return pair.message;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

absl::StatusOr<std::optional<kernels::DataType>> FromMessage(v1::DataType type, std::string_view field) {
  if (type == v1::DATA_TYPE_UNSPECIFIED) return std::nullopt;
  for (const Pair& pair : kPairs) {
    if (pair.message == type) return pair.type;
  }
  return base::InvalidField(field, absl::StrCat("data_type is ", static_cast<int>(type), "; there are 1 to ", kPairs.size()));
}

}  // namespace ridgeline::api
