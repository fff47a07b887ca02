#include "client/cli/geometry_flags.h"

#include "absl/flags/flag.h"

ABSL_FLAG(int, layers, 1,
          "Layers of the model that share a KV cache's pages; a step of a load attends each, one after the other.");
ABSL_FLAG(int, page_tokens, 16, "Tokens in a page of a KV cache: 1 to 256.");
ABSL_FLAG(
    std::int64_t, capacity_pages, 0,
    "Pages of a KV cache. 0: as --capacity_bytes says; of a load's caches: room for as many of the longest sessions as run "
    "at once.");
