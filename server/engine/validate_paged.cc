#include "server/engine/validate_paged.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/saturating.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/engine/validate_options.h"

namespace ridgeline::engine {
namespace {

using base::InvalidField;
using kernels::SaturatingAdd;
using kernels::attention::Sequence;
using kv_cache::Geometry;
using kv_cache::SequenceSelection;

// Sequences go by their names, which are unique; a collision of two only makes one wait for the other.
std::vector<Access> AccessesTo(const std::vector<std::string>& sequences, bool writes) {
  std::vector<Access> accesses;
  accesses.reserve(sequences.size());
  for (const std::string& name : sequences) accesses.push_back({.what = absl::HashOf(name), .writes = writes});
  return accesses;
}

// Of each sequence.
std::vector<std::int64_t> TokensOf(const TokenLayout& layout, const std::vector<std::int64_t>& lengths) {
  return layout.ragged ? lengths : std::vector<std::int64_t>(layout.batch, layout.tokens);
}

absl::Status CheckNumSequences(const char* field, std::size_t named, const char* tensor_name, std::int64_t needed) {
  if (static_cast<std::int64_t>(named) == needed) return absl::OkStatus();
  return InvalidField(field, absl::StrCat("has ", named, " entries; the ", tensor_name, " has ", needed, " sequences"));
}

absl::Status CheckHeadDim(const char* field, std::int64_t head_dim, std::int64_t needed) {
  if (head_dim == needed) return absl::OkStatus();
  return InvalidField(absl::StrCat(field, ".shape"),
                      absl::StrCat("has head_dim ", head_dim, "; the cache's, ", needed, ", is needed"));
}

absl::Status CheckType(const char* field, kernels::DataType type, kernels::DataType needed) {
  if (type == needed) return absl::OkStatus();
  return InvalidField(absl::StrCat(field, ".data_type"),
                      absl::StrCat("is ", Name(type), "; the cache's type, ", Name(needed), ", is needed"));
}

absl::Status CheckQueryFits(const Geometry& geometry, const TokenTensor& query) {
  RIDGELINE_RETURN_IF_ERROR(CheckType("query", query.source.data_type, geometry.data_type));
  RIDGELINE_RETURN_IF_ERROR(CheckHeadDim("query", query.layout.head_dim, geometry.head_dim));
  if (query.layout.heads % geometry.kv_heads == 0) return absl::OkStatus();
  return InvalidField("query.shape", absl::StrCat("has ", query.layout.heads, " heads; a multiple of the cache's ",
                                                  geometry.kv_heads, " heads is needed"));
}

struct NewRows {
  TokenTensor key;
  TokenTensor value;
};

// Empty if nothing is to be appended.
absl::StatusOr<std::optional<NewRows>> TakeNewRows(PagedKeyValue& paged, const TokenLayout& query) {
  if (!paged.new_key.has_value() && !paged.new_value.has_value()) return std::optional<NewRows>();
  NewRows rows;
  RIDGELINE_ASSIGN_OR_RETURN(rows.key, TakeTokenTensor("paged.new_key", paged.new_key));
  RIDGELINE_ASSIGN_OR_RETURN(rows.value, TakeTokenTensor("paged.new_value", paged.new_value));
  RIDGELINE_RETURN_IF_ERROR(CheckValueMatchesKey("paged.new_value", rows.key, rows.value));
  const TokenLayout& key = rows.key.layout;
  if (key.ragged != query.ragged || key.batch != query.batch || key.tokens != query.tokens) {
    return InvalidField("paged.new_key.shape", absl::StrCat("is ", FormatShape(rows.key.shape),
                                                            "; as many rows as the query's, in the same layout, are needed"));
  }
  return std::optional<NewRows>(std::move(rows));
}

// Of the query's rows; keys are those of the selection.
std::vector<Sequence> MakeSequences(const TokenLayout& query, const std::vector<std::int64_t>& query_tokens,
                                    const SequenceSelection& selection) {
  std::vector<Sequence> sequences;
  sequences.reserve(query_tokens.size());
  std::int64_t query_begin = 0;
  for (std::size_t row = 0; row < query_tokens.size(); ++row) {
    sequences.push_back({.query_begin = query_begin,
                         .query_tokens = query_tokens[row],
                         .key_begin = 0,
                         .key_tokens = SaturatingAdd(selection.expected_tokens(row), selection.append_tokens(row)),
                         // [batch, Hq, Sq], ragged [Hq, total tokens].
                         .lse_begin = query.ragged ? query_begin : query_begin * query.heads});
    query_begin += query_tokens[row];
  }
  return sequences;
}

}  // namespace

absl::Status CheckRowsFit(const Geometry& geometry, const char* key_field, const TokenTensor& key, const char* value_field,
                          const TokenTensor& value) {
  RIDGELINE_RETURN_IF_ERROR(CheckType(key_field, key.source.data_type, geometry.data_type));
  if (key.layout.heads != geometry.kv_heads) {
    return InvalidField(absl::StrCat(key_field, ".shape"),
                        absl::StrCat("has ", key.layout.heads, " heads; the cache's ", geometry.kv_heads, " are needed"));
  }
  RIDGELINE_RETURN_IF_ERROR(CheckHeadDim(key_field, key.layout.head_dim, geometry.head_dim));
  return CheckHeadDim(value_field, value.layout.head_dim, geometry.value_head_dim);
}

absl::StatusOr<PagedAttendProblem> ValidatePagedAttend(const kv_cache::Caller& caller, AttendRequest request,
                                                       kv_cache::KvCacheStore& store) {
  if (request.dense.has_value()) return InvalidField("paged", "is given beside dense; exactly one of them is needed");
  if (request.options.bias.has_value()) return InvalidField("options.bias", "is for dense batches; keys and values are paged");
  RIDGELINE_ASSIGN_OR_RETURN(TokenTensor query, TakeTokenTensor("query", request.query));
  RIDGELINE_RETURN_IF_ERROR(CheckRaggedLengths("query_lengths", "query", query.layout, request.query_lengths));
  RIDGELINE_RETURN_IF_ERROR(CheckNumSequences("paged.sequences", request.paged->sequences.size(), "query",
                                              NumSequences(query.layout, request.query_lengths)));
  RIDGELINE_ASSIGN_OR_RETURN(std::optional<NewRows> new_rows, TakeNewRows(*request.paged, query.layout));
  const std::vector<std::int64_t> query_tokens = TokensOf(query.layout, request.query_lengths);

  PagedAttendProblem paged;
  paged.appends = new_rows.has_value();
  paged.accesses = AccessesTo(request.paged->sequences, paged.appends);
  RIDGELINE_ASSIGN_OR_RETURN(
      paged.selection, store.Select(caller, {.sequences = std::move(request.paged->sequences),
                                             .layer = request.paged->layer,
                                             .append_tokens = paged.appends ? query_tokens : std::vector<std::int64_t>()}));
  const Geometry& geometry = paged.selection->geometry();
  RIDGELINE_RETURN_IF_ERROR(CheckQueryFits(geometry, query));
  AttendProblem& problem = paged.attend;
  if (paged.appends) {
    RIDGELINE_RETURN_IF_ERROR(CheckRowsFit(geometry, "paged.new_key", new_rows->key, "paged.new_value", new_rows->value));
    problem.key = std::move(new_rows->key.source);
    problem.value = std::move(new_rows->value.source);
  }
  problem.shape = {.data_type = query.source.data_type,
                   .output_data_type = query.source.data_type,
                   .num_sequences = static_cast<std::int64_t>(query_tokens.size()),
                   .query_heads = query.layout.heads,
                   .kv_heads = geometry.kv_heads,
                   .head_dim = query.layout.head_dim,
                   .value_head_dim = geometry.value_head_dim,
                   .page_tokens = geometry.page_tokens};
  RIDGELINE_RETURN_IF_ERROR(TakeOptions(request.options, query.layout, problem));
  problem.query = std::move(query.source);
  RIDGELINE_RETURN_IF_ERROR(PlanOutput(request.output, query.shape, query.layout, problem));
  problem.sequences = MakeSequences(query.layout, query_tokens, *paged.selection);
  return paged;
}

absl::StatusOr<AppendProblem> ValidateAppend(const kv_cache::Caller& caller, AppendKeyValueRequest request,
                                             kv_cache::KvCacheStore& store, const AppendFields& fields) {
  RIDGELINE_ASSIGN_OR_RETURN(TokenTensor key, TakeTokenTensor(fields.key, request.key));
  RIDGELINE_ASSIGN_OR_RETURN(TokenTensor value, TakeTokenTensor(fields.value, request.value));
  RIDGELINE_RETURN_IF_ERROR(CheckValueMatchesKey(fields.value, key, value));
  RIDGELINE_RETURN_IF_ERROR(CheckRaggedLengths(fields.lengths, "key", key.layout, request.lengths));
  RIDGELINE_RETURN_IF_ERROR(
      CheckNumSequences(fields.sequences, request.sequences.size(), "key", NumSequences(key.layout, request.lengths)));

  AppendProblem problem;
  problem.accesses = AccessesTo(request.sequences, /*writes=*/true);
  RIDGELINE_ASSIGN_OR_RETURN(problem.selection, store.Select(caller, {.sequences = std::move(request.sequences),
                                                                      .layer = request.layer,
                                                                      .append_tokens = TokensOf(key.layout, request.lengths),
                                                                      .sequences_field = fields.sequences,
                                                                      .layer_field = fields.layer}));
  RIDGELINE_RETURN_IF_ERROR(CheckRowsFit(problem.selection->geometry(), fields.key, key, fields.value, value));
  problem.key_shape = std::move(key.shape);
  problem.key = std::move(key.source);
  problem.value = std::move(value.source);
  return problem;
}

}  // namespace ridgeline::engine
