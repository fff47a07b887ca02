// The arguments that fused operations have in common, checked one by one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/engine/check_tensor.h"
#include "server/engine/fuse_problem.h"
#include "server/engine/fuse_request.h"

namespace ridgeline::engine {

// Paths of an operation's fields: "layer_norm" makes "layer_norm.weight".
class FuseFields {
 public:
  explicit FuseFields(kernels::fused::Op op);

  std::string Path(absl::string_view field) const;

 private:
  const std::string op_;
};

// A tensor of that type and shape; what is needed instead of another shape is said by `needed`, e.g. "an element for each
// column".
absl::StatusOr<TensorSource> TakeShaped(const std::string& field, std::optional<Tensor>& tensor, kernels::DataType type,
                                        const Shape& shape, absl::string_view needed);

// int64, of that shape, sent with the request.
absl::StatusOr<TensorSource> TakePositions(const std::string& field, std::optional<Tensor>& tensor, const Shape& shape);

// epsilon, and the options of dropout, where the operation has them.
absl::Status TakeRowOptions(const FuseFields& fields, const FuseRequest& request, kernels::fused::FusedShape& shape);

// The options of rotary embeddings.
absl::Status TakeRopeOptions(const FuseFields& fields, const FuseRequest& request, std::int64_t head_dim,
                             kernels::fused::FusedShape& shape);

// Of the elements of one row; 1 to kMaxRowElems are allowed.
absl::Status CheckRowElems(const std::string& shape_field, std::int64_t row_elems);

}  // namespace ridgeline::engine
