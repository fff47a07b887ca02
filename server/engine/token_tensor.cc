#include "server/engine/token_tensor.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/saturating.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::engine {
namespace {

using base::InvalidField;
using kernels::DataType;
using kernels::SaturatingAdd;

constexpr std::int64_t kMaxHeadDim = 256;
constexpr std::int64_t kHeadDimStep = 8;

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

}  // namespace

absl::StatusOr<TokenTensor> TakeTokenTensor(const char* field, std::optional<Tensor>& tensor) {
  RIDGELINE_ASSIGN_OR_RETURN(const DataType type, CheckPresent(field, tensor));
  RIDGELINE_RETURN_IF_ERROR(CheckFloatType(absl::StrCat(field, ".data_type"), type));
  RIDGELINE_ASSIGN_OR_RETURN(const std::int64_t elements, CountElements(field, type, tensor->shape));
  RIDGELINE_ASSIGN_OR_RETURN(const TokenLayout layout, ParseTokenLayout(field, tensor->shape));
  RIDGELINE_ASSIGN_OR_RETURN(TensorSource source, TakeSource(field, type, elements, *tensor));
  return TokenTensor{.source = std::move(source), .shape = tensor->shape, .layout = layout};
}

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

absl::Status CheckRaggedLengths(const char* field, const char* tensor_name, const TokenLayout& layout,
                                const std::vector<std::int64_t>& lengths) {
  if (layout.ragged) return CheckLengthsSum(field, lengths, layout.tokens);
  if (lengths.empty()) return absl::OkStatus();
  return InvalidField(
      field, absl::StrCat("has ", lengths.size(), " entries; a dense ", tensor_name, ", which has rank 4, takes none"));
}

absl::Status CheckValueMatchesKey(const char* value_field, const TokenTensor& key, const TokenTensor& value) {
  if (value.source.data_type != key.source.data_type) {
    return InvalidField(
        absl::StrCat(value_field, ".data_type"),
        absl::StrCat("is ", Name(value.source.data_type), "; the key's type, ", Name(key.source.data_type), ", is needed"));
  }
  if (value.shape.size() != key.shape.size() || !std::equal(key.shape.begin(), key.shape.end() - 1, value.shape.begin())) {
    return InvalidField(absl::StrCat(value_field, ".shape"),
                        absl::StrCat("is ", FormatShape(value.shape), "; all but the last extent must be the key's, which is ",
                                     FormatShape(key.shape)));
  }
  return absl::OkStatus();
}

std::int64_t NumSequences(const TokenLayout& layout, const std::vector<std::int64_t>& lengths) {
  return layout.ragged ? static_cast<std::int64_t>(lengths.size()) : layout.batch;
}

}  // namespace ridgeline::engine
