// Tensors that have a row for each token and head: query, key and value.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/engine/check_tensor.h"
#include "server/engine/tensor.h"

namespace ridgeline::engine {

// Bounds of the server's own, far beyond any model: tables and loops over sequences and heads stay small whatever a shape says.
inline constexpr std::int64_t kMaxSequences = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxHeads = std::int64_t{1} << 16;

// The shape of query, key or value by name.
struct TokenLayout {
  bool ragged;
  std::int64_t batch;   // dense only
  std::int64_t tokens;  // of each row; ragged: of all sequences
  std::int64_t heads;
  std::int64_t head_dim;
};

struct TokenTensor {
  TensorSource source;
  Shape shape;
  TokenLayout layout;
};

// Type, shape and storage of the argument `field`. Errors: INVALID_ARGUMENT or UNIMPLEMENTED, naming the field or one below it.
absl::StatusOr<TokenTensor> TakeTokenTensor(const char* field, std::optional<Tensor>& tensor);

// Lengths of a ragged tensor's sequences: none is negative, their sum is total_tokens.
absl::Status CheckLengthsSum(const char* field, const std::vector<std::int64_t>& lengths, std::int64_t total_tokens);

// Ragged: as CheckLengthsSum; a dense tensor takes none.
absl::Status CheckRaggedLengths(const char* field, const char* tensor_name, const TokenLayout& layout,
                                const std::vector<std::int64_t>& lengths);

// What is the same of keys and values: type and all extents but the last. Errors name `value_field` or one below it.
absl::Status CheckValueMatchesKey(const char* value_field, const TokenTensor& key, const TokenTensor& value);

// Of a tensor whose lengths have been checked.
std::int64_t NumSequences(const TokenLayout& layout, const std::vector<std::int64_t>& lengths);

}  // namespace ridgeline::engine
