// What kernels would do with a use, on an arena in host memory: a token is a number, which its key and its value hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/engine/kv_cache/sequence_use.h"

namespace ridgeline::engine::kv_cache {

using Tokens = std::vector<std::int64_t>;

// Copies whole pages of all layers, as the use says.
void CopyPages(const SequenceUse& use);

// Writes the tokens that the use appends to its row-th sequence: as many as it said.
void WriteTokens(const SequenceUse& use, std::size_t row, const Tokens& tokens);

// Tokens [0, end_tokens) of the row-th sequence in the use's layer. -1 where the key and the value differ.
Tokens ReadTokens(const SequenceUse& use, std::size_t row);

}  // namespace ridgeline::engine::kv_cache
