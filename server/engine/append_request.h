// One AppendKeyValue call, as it came and as it goes back. Fields mirror ridgeline.v1, so that errors name what the client
// sent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/engine/tensor.h"

namespace ridgeline::engine {

struct AppendKeyValueRequest {
  std::vector<std::string> sequences;
  std::int64_t layer = 0;
  std::optional<Tensor> key;
  std::optional<Tensor> value;
  std::vector<std::int64_t> lengths;
};

struct AppendKeyValueResult {
  std::vector<std::int64_t> lengths;  // of each sequence in that layer after appending, in the request's order
};

}  // namespace ridgeline::engine
