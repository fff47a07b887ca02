// KV caches and sequences as documents.
#pragma once

#include <vector>

#include "absl/time/time.h"
#include "client/cli/document.h"
#include "ridgeline/v1/kv_cache.pb.h"

namespace ridgeline::cli {

// `now` tells how long the lease still runs.
Section CacheSection(const v1::KvCache& cache, absl::Time now);
Section SequenceSection(const v1::Sequence& sequence, absl::Time now);

// A row each.
Rows CacheRows(const std::vector<v1::KvCache>& caches, absl::Time now);
Rows SequenceRows(const std::vector<v1::Sequence>& sequences, absl::Time now);

}  // namespace ridgeline::cli
