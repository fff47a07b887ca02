#include "server/engine/validate_rope_append.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/engine/fuse_fields.h"
#include "server/engine/token_tensor.h"
#include "server/engine/validate_paged.h"

namespace ridgeline::engine {
namespace {

using base::InvalidField;
using kernels::fused::FusedShape;

constexpr AppendFields kAppendFields = {.sequences = "rope_append.sequences",
                                        .layer = "rope_append.layer",
                                        .key = "rope_append.new_key",
                                        .value = "rope_append.new_value",
                                        .lengths = "rope_append.lengths"};
constexpr char kQuery[] = "rope_append.query";

// A query for each new key, in rows of its own number of heads.
absl::Status TakeQuery(std::optional<Tensor>& tensor, const AppendProblem& append, FuseProblem& problem) {
  RIDGELINE_ASSIGN_OR_RETURN(TokenTensor query, TakeTokenTensor(kQuery, tensor));
  if (query.source.data_type != append.key.data_type) {
    return InvalidField(
        absl::StrCat(kQuery, ".data_type"),
        absl::StrCat("is ", Name(query.source.data_type), "; the key's type, ", Name(append.key.data_type), ", is needed"));
  }
  Shape needed = append.key_shape;
  needed[needed.size() - 2] = query.layout.heads;
  if (query.shape != needed) {
    return InvalidField(absl::StrCat(kQuery, ".shape"), absl::StrCat("is ", FormatShape(query.shape),
                                                                     "; all extents but its heads must be the key's, which is ",
                                                                     FormatShape(append.key_shape)));
  }
  problem.shape.row_elems = query.layout.heads * query.layout.head_dim;
  RIDGELINE_RETURN_IF_ERROR(CheckRowElems(absl::StrCat(kQuery, ".shape"), problem.shape.row_elems));
  problem.input = std::move(query.source);
  problem.output_shape = std::move(query.shape);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FuseProblem> ValidateRopeAppend(const kv_cache::Caller& caller, FuseRequest& request,
                                               kv_cache::KvCacheStore& store) {
  FuseAppend& given = request.append;
  RIDGELINE_ASSIGN_OR_RETURN(AppendProblem append, ValidateAppend(caller,
                                                                  {.sequences = std::move(given.sequences),
                                                                   .layer = given.layer,
                                                                   .key = std::move(given.new_key),
                                                                   .value = std::move(given.new_value),
                                                                   .lengths = std::move(given.lengths)},
                                                                  store, kAppendFields));
  const kv_cache::Geometry& geometry = append.selection->geometry();
  FuseProblem problem;
  FusedShape& shape = problem.shape;
  shape.op = *request.op;
  shape.data_type = geometry.data_type;
  shape.key_elems = geometry.kv_heads * geometry.head_dim;
  shape.value_elems = geometry.kv_heads * geometry.value_head_dim;
  shape.num_rows = append.key.elements / shape.key_elems;
  shape.has_input = request.input.has_value();
  RIDGELINE_RETURN_IF_ERROR(CheckRowElems(absl::StrCat(kAppendFields.key, ".shape"), shape.key_elems));
  RIDGELINE_RETURN_IF_ERROR(CheckRowElems(absl::StrCat(kAppendFields.value, ".shape"), shape.value_elems));
  if (shape.has_input) RIDGELINE_RETURN_IF_ERROR(TakeQuery(request.input, append, problem));

  const FuseFields fields(shape.op);
  RIDGELINE_RETURN_IF_ERROR(TakeRopeOptions(fields, request, geometry.head_dim, shape));
  shape.has_positions = request.positions.has_value();
  if (shape.has_positions) {
    const Shape tokens(append.key_shape.begin(), append.key_shape.end() - 2);
    RIDGELINE_ASSIGN_OR_RETURN(problem.positions, TakePositions(fields.Path("positions"), request.positions, tokens));
  }
  for (std::size_t row = 0; row < append.selection->size(); ++row) {
    problem.longest_append_tokens = std::max(problem.longest_append_tokens, append.selection->append_tokens(row));
  }
  problem.key = std::move(append.key);
  problem.value = std::move(append.value);
  problem.selection = std::move(append.selection);
  problem.accesses = std::move(append.accesses);
  return problem;
}

}  // namespace ridgeline::engine
