#include "server/engine/validate_attend.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/saturating.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/engine/token_tensor.h"
#include "server/engine/validate_options.h"

namespace ridgeline::engine {
namespace {

using base::InvalidField;
using kernels::SaturatingMultiply;
using kernels::attention::Sequence;

absl::Status CheckMatchesQuery(const TokenTensor& query, const TokenTensor& key) {
  if (key.source.data_type != query.source.data_type) {
    return InvalidField("dense.key.data_type", absl::StrCat("is ", Name(key.source.data_type), "; the query's type, ",
                                                            Name(query.source.data_type), ", is needed"));
  }
  if (key.layout.head_dim != query.layout.head_dim) {
    return InvalidField("dense.key.shape", absl::StrCat("has head_dim ", key.layout.head_dim, "; the query's, ",
                                                        query.layout.head_dim, ", is needed"));
  }
  if (query.layout.heads % key.layout.heads != 0) {
    return InvalidField("dense.key.shape", absl::StrCat("has ", key.layout.heads, " heads; the query's ", query.layout.heads,
                                                        " heads must be a multiple of that"));
  }
  return absl::OkStatus();
}

// ---- Lengths and the sequence table -----------------------------------------------------------------------------------------

absl::Status CheckKeyLengths(const TokenLayout& key, const std::vector<std::int64_t>& lengths) {
  if (key.ragged) return CheckLengthsSum("dense.lengths", lengths, key.tokens);
  if (lengths.empty()) return absl::OkStatus();
  if (lengths.size() != static_cast<std::size_t>(key.batch)) {
    return InvalidField("dense.lengths", absl::StrCat("has ", lengths.size(), " entries; the batch has ", key.batch, " rows"));
  }
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0 || lengths[i] > key.tokens) {
      return InvalidField("dense.lengths",
                          absl::StrCat("entry ", i, " is ", lengths[i], "; 0 to key_tokens, ", key.tokens, ", is allowed"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSameNumber(std::int64_t query_sequences, std::int64_t key_sequences, bool ragged_keys) {
  if (query_sequences == key_sequences) return absl::OkStatus();
  return InvalidField(ragged_keys ? "dense.lengths" : "dense.key.shape",
                      absl::StrCat("is of ", key_sequences, " sequences; the query has ", query_sequences));
}

// All lengths have been checked, so every sum and product below is at most a tensor's number of elements.
std::vector<Sequence> MakeSequences(const TokenLayout& query, const std::vector<std::int64_t>& query_lengths,
                                    const TokenLayout& key, const std::vector<std::int64_t>& key_lengths,
                                    std::int64_t num_sequences) {
  std::vector<Sequence> sequences;
  sequences.reserve(num_sequences);
  std::int64_t query_begin = 0;
  std::int64_t key_begin = 0;
  for (std::int64_t i = 0; i < num_sequences; ++i) {
    const std::int64_t query_tokens = query.ragged ? query_lengths[i] : query.tokens;
    const std::int64_t key_tokens = key_lengths.empty() ? key.tokens : key_lengths[i];
    sequences.push_back({.query_begin = query_begin,
                         .query_tokens = query_tokens,
                         .key_begin = key_begin,
                         .key_tokens = key_tokens,
                         // [batch, Hq, Sq], ragged [Hq, total tokens].
                         .lse_begin = query.ragged ? query_begin : query_begin * query.heads});
    query_begin += query_tokens;
    key_begin += key.ragged ? key_tokens : key.tokens;
  }
  return sequences;
}

absl::Status CheckBiasShape(const Shape& shape, const TokenLayout& query, const TokenLayout& key) {
  const bool fits = shape.size() == 4 && (shape[0] == 1 || shape[0] == query.batch) &&
                    (shape[1] == 1 || shape[1] == query.heads) && shape[2] == query.tokens && shape[3] == key.tokens;
  if (fits) return absl::OkStatus();
  return InvalidField("options.bias.shape", absl::StrCat("is ", FormatShape(shape), "; [1 or ", query.batch, ", 1 or ",
                                                         query.heads, ", ", query.tokens, ", ", key.tokens, "] is needed"));
}

// The values are not read: the tensor may be as large as S, and any of them, NaN too, is the client's own affair.
absl::Status TakeBias(std::optional<Tensor>& bias, const TokenLayout& query, const TokenLayout& key, AttendProblem& problem) {
  if (!bias.has_value()) return absl::OkStatus();
  if (query.ragged || key.ragged) return InvalidField("options.bias", "is for dense batches; query or key is ragged");
  RIDGELINE_ASSIGN_OR_RETURN(TensorSource source, TakeFloat32("options.bias", bias, CheckBiasShape(bias->shape, query, key)));
  problem.bias_row_stride_elems = key.tokens;
  const std::int64_t head_elems = SaturatingMultiply({query.tokens, key.tokens});
  if (bias->shape[1] != 1) problem.bias_head_stride_elems = head_elems;
  if (bias->shape[0] != 1) problem.bias_sequence_stride_elems = SaturatingMultiply({bias->shape[1], head_elems});
  problem.bias = std::move(source);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AttendProblem> ValidateAttend(AttendRequest request) {
  RIDGELINE_ASSIGN_OR_RETURN(TokenTensor query, TakeTokenTensor("query", request.query));
  RIDGELINE_RETURN_IF_ERROR(CheckRaggedLengths("query_lengths", "query", query.layout, request.query_lengths));
  if (!request.dense.has_value()) return InvalidField("dense", "is missing: keys and values are needed");
  RIDGELINE_ASSIGN_OR_RETURN(TokenTensor key, TakeTokenTensor("dense.key", request.dense->key));
  RIDGELINE_RETURN_IF_ERROR(CheckMatchesQuery(query, key));
  RIDGELINE_ASSIGN_OR_RETURN(TokenTensor value, TakeTokenTensor("dense.value", request.dense->value));
  RIDGELINE_RETURN_IF_ERROR(CheckValueMatchesKey("dense.value", key, value));
  RIDGELINE_RETURN_IF_ERROR(CheckKeyLengths(key.layout, request.dense->lengths));
  const std::int64_t num_sequences = NumSequences(query.layout, request.query_lengths);
  RIDGELINE_RETURN_IF_ERROR(
      CheckSameNumber(num_sequences, NumSequences(key.layout, request.dense->lengths), key.layout.ragged));

  AttendProblem problem;
  problem.shape = {.data_type = query.source.data_type,
                   .output_data_type = query.source.data_type,
                   .num_sequences = num_sequences,
                   .query_heads = query.layout.heads,
                   .kv_heads = key.layout.heads,
                   .head_dim = query.layout.head_dim,
                   .value_head_dim = value.layout.head_dim};
  RIDGELINE_RETURN_IF_ERROR(TakeOptions(request.options, query.layout, problem));
  RIDGELINE_RETURN_IF_ERROR(TakeBias(request.options.bias, query.layout, key.layout, problem));
  problem.query = std::move(query.source);
  problem.key = std::move(key.source);
  problem.value = std::move(value.source);
  RIDGELINE_RETURN_IF_ERROR(PlanOutput(request.output, query.shape, query.layout, problem));
  problem.sequences = MakeSequences(query.layout, request.query_lengths, key.layout, request.dense->lengths, num_sequences);
  return problem;
}

}  // namespace ridgeline::engine
