#include "client/cli/tensor_file.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/arguments.h"
#include "client/cpp/npy.h"
#include "client/cpp/tensor_io.h"

namespace ridgeline::cli {

absl::StatusOr<v1::Tensor> TensorFromFile(const std::string& path, v1::DataType type) {
  absl::StatusOr<client::Array> array = client::ReadNpy(path);
  if (!array.ok()) return array.status();
  const std::optional<client::ElementType> wanted = client::ElementTypeOf(type);
  if (wanted.has_value()) array = client::ConvertTo(*std::move(array), *wanted);
  if (array->type == client::ElementType::kFloat64) {
    return UsageError(absl::StrCat(path, " holds float64, which can't be sent; convert it with --dtype=float32"));
  }
  return client::ToTensor(*std::move(array));
}

}  // namespace ridgeline::cli
