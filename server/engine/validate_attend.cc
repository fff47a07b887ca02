#include "server/engine/validate_attend.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/saturating.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::engine {
namespace {

using base::InvalidField;
using base::Unsupported;
using kernels::DataType;
using kernels::ElementBytes;
using kernels::SaturatingAdd;
using kernels::SaturatingMultiply;
using kernels::attention::AttentionShape;
using kernels::attention::kUnlimitedWindow;
using kernels::attention::Sequence;

constexpr std::int64_t kMaxHeadDim = 256;
constexpr std::int64_t kHeadDimStep = 8;

// ---- Query, key and value ---------------------------------------------------------------------------------------------------

// The shape of query, key or value by name.
struct TokenLayout {
  bool ragged;
  std::int64_t batch;   // dense only
  std::int64_t tokens;  // of each row; ragged: of all sequences
  std::int64_t heads;
  std::int64_t head_dim;
};

absl::StatusOr<TokenLayout> ParseTokenLayout(const char* field, const Shape& shape) {
  const std::string shape_field = absl::StrCat(field, ".shape");
  const std::size_t rank = shape.size();
  if (rank != 3 && rank != 4) {
    return InvalidField(shape_field, absl::StrCat("has rank ", rank,
                                                  "; [batch, tokens, heads, head_dim] or ragged [tokens, heads, head_dim] is "
                                                  "needed"));
  }
  const bool ragged = rank == 3;
  const TokenLayout layout{.ragged = ragged,
                           .batch = ragged ? 0 : shape[0],
                           .tokens = shape[rank - 3],
                           .heads = shape[rank - 2],
                           .head_dim = shape[rank - 1]};
  if (layout.heads < 1 || layout.heads > kMaxHeads) {
    return InvalidField(shape_field, absl::StrCat("has ", layout.heads, " heads; 1 to ", kMaxHeads, " are allowed"));
  }
  if (layout.head_dim < 1 || layout.head_dim > kMaxHeadDim || layout.head_dim % kHeadDimStep != 0) {
    return InvalidField(shape_field, absl::StrCat("has head_dim ", layout.head_dim, "; a multiple of ", kHeadDimStep, " up to ",
                                                  kMaxHeadDim, " is needed"));
  }
  if (layout.batch > kMaxSequences) {
    return InvalidField(shape_field, absl::StrCat("has batch ", layout.batch, "; at most ", kMaxSequences, " are allowed"));
  }
  return layout;
}

struct Argument {
  TensorSource source;
  TokenLayout layout;
};

absl::StatusOr<Argument> TakeArgument(const char* field, std::optional<Tensor>& tensor) {
  RIDGELINE_ASSIGN_OR_RETURN(const DataType type, CheckPresent(field, tensor));
  RIDGELINE_RETURN_IF_ERROR(CheckFloatType(absl::StrCat(field, ".data_type"), type));
  RIDGELINE_ASSIGN_OR_RETURN(const std::int64_t elements, CountElements(field, type, tensor->shape));
  RIDGELINE_ASSIGN_OR_RETURN(const TokenLayout layout, ParseTokenLayout(field, tensor->shape));
  RIDGELINE_ASSIGN_OR_RETURN(TensorSource source, TakeSource(field, type, elements, *tensor));
  return Argument{.source = std::move(source), .layout = layout};
}

absl::Status CheckMatchesQuery(const Argument& query, const Argument& key) {
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

absl::Status CheckMatchesKey(const Argument& key, const Shape& key_shape, const Argument& value, const Shape& value_shape) {
  if (value.source.data_type != key.source.data_type) {
    return InvalidField("dense.value.data_type", absl::StrCat("is ", Name(value.source.data_type), "; the query's type, ",
                                                              Name(key.source.data_type), ", is needed"));
  }
  if (value_shape.size() != key_shape.size() || !std::equal(key_shape.begin(), key_shape.end() - 1, value_shape.begin())) {
    return InvalidField("dense.value.shape", absl::StrCat("is ", FormatShape(value_shape),
                                                          "; all but the last extent must be the "
                                                          "key's, which is ",
                                                          FormatShape(key_shape)));
  }
  return absl::OkStatus();
}

// ---- Lengths and the sequence table -----------------------------------------------------------------------------------------

absl::Status CheckLengthsSum(const char* field, const std::vector<std::int64_t>& lengths, std::int64_t total_tokens) {
  if (lengths.size() > static_cast<std::size_t>(kMaxSequences)) {
    return InvalidField(field, absl::StrCat("has ", lengths.size(), " entries; at most ", kMaxSequences, " are allowed"));
  }
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0) return InvalidField(field, absl::StrCat("entry ", i, " is ", lengths[i], "; at least 0 is needed"));
    sum = SaturatingAdd(sum, lengths[i]);
  }
  if (sum == total_tokens) return absl::OkStatus();
  return InvalidField(
      field, absl::StrCat("has ", lengths.size(), " entries that sum to ", sum, "; the tensor has ", total_tokens, " tokens"));
}

absl::Status CheckQueryLengths(const TokenLayout& query, const std::vector<std::int64_t>& lengths) {
  if (query.ragged) return CheckLengthsSum("query_lengths", lengths, query.tokens);
  if (lengths.empty()) return absl::OkStatus();
  return InvalidField("query_lengths", absl::StrCat("has ", lengths.size(),
                                                    " entries; a dense query, which has rank 4, takes "
                                                    "none"));
}

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

std::int64_t NumSequences(const TokenLayout& layout, const std::vector<std::int64_t>& lengths) {
  return layout.ragged ? static_cast<std::int64_t>(lengths.size()) : layout.batch;
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

// ---- Options ----------------------------------------------------------------------------------------------------------------

absl::StatusOr<float> CheckScale(const std::optional<double>& scale, std::int64_t head_dim) {
  if (!scale.has_value()) return static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
  if (!IsFiniteFloat(*scale)) {
    return InvalidField("options.scale", absl::StrCat("is ", *scale, "; a finite float32 is needed"));
  }
  return static_cast<float>(*scale);
}

absl::StatusOr<float> CheckSoftCap(double cap) {
  const auto rounded = static_cast<float>(cap);
  // A positive cap that float32 rounds to 0 would turn from "flatten everything" into "no cap".
  if (std::isfinite(rounded) && cap >= 0 && (rounded > 0 || cap == 0)) return rounded;
  return InvalidField("options.logit_soft_cap", absl::StrCat("is ", cap, "; 0 (none) or a positive, finite float32 is needed"));
}

absl::StatusOr<std::int64_t> CheckWindow(const char* field, const std::optional<std::int64_t>& window) {
  if (!window.has_value()) return kUnlimitedWindow;
  if (*window < 0) return InvalidField(field, absl::StrCat("is ", *window, "; at least 0 is needed (unset: all keys)"));
  return std::min(*window, kUnlimitedWindow);
}

absl::Status CheckMask(const AttentionOptions& options, AttentionShape& shape) {
  RIDGELINE_ASSIGN_OR_RETURN(shape.window_left, CheckWindow("options.window_left", options.window_left));
  RIDGELINE_ASSIGN_OR_RETURN(shape.window_right, CheckWindow("options.window_right", options.window_right));
  if (options.causal) shape.window_right = 0;
  return absl::OkStatus();
}

// `fits` is ok if the shape is the one needed.
absl::StatusOr<TensorSource> TakeFloat32(const char* field, std::optional<Tensor>& tensor, const absl::Status& fits) {
  RIDGELINE_ASSIGN_OR_RETURN(const DataType type, CheckPresent(field, tensor));
  if (type != DataType::kFloat32) {
    return InvalidField(absl::StrCat(field, ".data_type"), absl::StrCat("is ", Name(type), "; float32 is needed"));
  }
  RIDGELINE_ASSIGN_OR_RETURN(const std::int64_t elements, CountElements(field, type, tensor->shape));
  RIDGELINE_RETURN_IF_ERROR(fits);
  return TakeSource(field, type, elements, *tensor);
}

absl::Status CheckPerHeadShape(const char* field, const Shape& shape, std::int64_t query_heads) {
  if (shape.size() == 1 && shape[0] == query_heads) return absl::OkStatus();
  return InvalidField(
      absl::StrCat(field, ".shape"),
      absl::StrCat("is ", FormatShape(shape), "; an element for each query head, [", query_heads, "], is needed"));
}

// A float32 for each query head, each of which passes `allowed`.
absl::StatusOr<std::optional<TensorSource>> TakePerHead(const char* field, std::optional<Tensor>& tensor,
                                                        std::int64_t query_heads, bool (*allowed)(float),
                                                        const char* what_is_allowed) {
  if (!tensor.has_value()) return std::optional<TensorSource>();
  RIDGELINE_ASSIGN_OR_RETURN(TensorSource source,
                             TakeFloat32(field, tensor, CheckPerHeadShape(field, tensor->shape, query_heads)));
  const std::vector<float> values = InlineValues(source);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!allowed(values[i])) {
      return InvalidField(absl::StrCat(field, ".inline_data"),
                          absl::StrCat("element ", i, " is ", values[i], "; ", what_is_allowed));
    }
  }
  return std::optional<TensorSource>(std::move(source));
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

absl::Status TakeOptions(AttentionOptions& options, const TokenLayout& query, const TokenLayout& key, AttendProblem& problem) {
  problem.algorithm = options.algorithm;
  RIDGELINE_ASSIGN_OR_RETURN(problem.scale, CheckScale(options.scale, query.head_dim));
  RIDGELINE_RETURN_IF_ERROR(CheckMask(options, problem.shape));
  RIDGELINE_ASSIGN_OR_RETURN(problem.logit_soft_cap, CheckSoftCap(options.logit_soft_cap));
  RIDGELINE_ASSIGN_OR_RETURN(problem.alibi_slopes,
                             TakePerHead(
                                 "options.alibi_slopes", options.alibi_slopes, query.heads,
                                 [](float slope) { return std::isfinite(slope); }, "finite slopes are needed"));
  RIDGELINE_ASSIGN_OR_RETURN(
      problem.sink_logits,
      TakePerHead(
          "options.sink_logits", options.sink_logits, query.heads,
          [](float logit) { return !std::isnan(logit) && logit != std::numeric_limits<float>::infinity(); },
          "finite logits or -inf (no sink) are needed"));
  return TakeBias(options.bias, query, key, problem);
}

// ---- Output -----------------------------------------------------------------------------------------------------------------

absl::Status PlanOutput(const OutputOptions& output, const Shape& query_shape, const TokenLayout& query,
                        AttendProblem& problem) {
  if (output.shared_memory.has_value()) {
    return Unsupported("output.shared_memory", "this server has no SharedMemoryService; results come inline");
  }
  const DataType type = output.data_type.value_or(problem.shape.data_type);
  RIDGELINE_RETURN_IF_ERROR(CheckFloatType("output.data_type", type));
  problem.shape.output_data_type = type;
  problem.discard = output.discard;

  problem.output_shape = query_shape;
  problem.output_shape.back() = problem.shape.value_head_dim;
  const std::int64_t rows = problem.query.elements / query.head_dim;  // of every query head
  problem.output_bytes = SaturatingMultiply({rows, problem.shape.value_head_dim, ElementBytes(type)});

  problem.lse_head_stride_elems = query.tokens;
  problem.wants_log_sum_exp = output.log_sum_exp;
  if (output.log_sum_exp) {
    problem.log_sum_exp_bytes = SaturatingMultiply({rows, static_cast<std::int64_t>(sizeof(float))});
    problem.log_sum_exp_shape = query.ragged ? Shape{query.heads, query.tokens} : Shape{query.batch, query.heads, query.tokens};
  }
  return absl::OkStatus();
}

}  // namespace

std::int64_t AttendProblem::tensor_bytes() const {
  std::int64_t bytes = sequence_table_bytes();
  for (const TensorSource* source : {&query, &key, &value}) bytes = SaturatingAdd(bytes, source->size_bytes());
  for (const auto* source : {&alibi_slopes, &sink_logits, &bias}) {
    if (source->has_value()) bytes = SaturatingAdd(bytes, (*source)->size_bytes());
  }
  return SaturatingAdd(SaturatingAdd(bytes, output_bytes), log_sum_exp_bytes);
}

std::int64_t AttendProblem::answer_bytes() const { return discard ? 0 : SaturatingAdd(output_bytes, log_sum_exp_bytes); }

kernels::attention::OptionalTensors AttendProblem::optional_tensors() const {
  return {.log_sum_exp = wants_log_sum_exp, .bias_bytes = bias.has_value() ? bias->size_bytes() : 0};
}

absl::StatusOr<AttendProblem> ValidateAttend(AttendRequest request) {
  if (request.paged.has_value())
    return Unsupported("paged", "this server has no KvCacheService; send keys and values as dense");
  RIDGELINE_ASSIGN_OR_RETURN(Argument query, TakeArgument("query", request.query));
  RIDGELINE_RETURN_IF_ERROR(CheckQueryLengths(query.layout, request.query_lengths));
  if (!request.dense.has_value()) return InvalidField("dense", "is missing: keys and values are needed");
  RIDGELINE_ASSIGN_OR_RETURN(Argument key, TakeArgument("dense.key", request.dense->key));
  RIDGELINE_RETURN_IF_ERROR(CheckMatchesQuery(query, key));
  RIDGELINE_ASSIGN_OR_RETURN(Argument value, TakeArgument("dense.value", request.dense->value));
  RIDGELINE_RETURN_IF_ERROR(CheckMatchesKey(key, request.dense->key->shape, value, request.dense->value->shape));
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
  RIDGELINE_RETURN_IF_ERROR(TakeOptions(request.options, query.layout, key.layout, problem));
  problem.query = std::move(query.source);
  problem.key = std::move(key.source);
  problem.value = std::move(value.source);
  RIDGELINE_RETURN_IF_ERROR(PlanOutput(request.output, request.query->shape, query.layout, problem));
  problem.sequences = MakeSequences(query.layout, request.query_lengths, key.layout, request.dense->lengths, num_sequences);
  return problem;
}

}  // namespace ridgeline::engine
