// The flags of a KV cache's geometry, which `cache create` and `load` share.
#pragma once

#include <cstdint>

#include "absl/flags/declare.h"

ABSL_DECLARE_FLAG(int, layers);
ABSL_DECLARE_FLAG(int, page_tokens);
ABSL_DECLARE_FLAG(std::int64_t, capacity_pages);
