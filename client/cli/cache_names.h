// Names of KV caches and sequences, as people type them.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ridgeline::cli {

// A cache, or one of its sequences.
struct CacheName {
  std::string cache_id;     // may be empty where the server makes ids
  std::string sequence_id;  // likewise
  bool is_sequence = false;

  std::string cache() const;     // kvCaches/{cache}
  std::string sequence() const;  // kvCaches/{cache}/sequences/{sequence}
};

// "chat", "chat/a", or the full names kvCaches/chat and kvCaches/chat/sequences/a. A usage error for anything else; whether ids
// are well formed is the server's to say.
absl::StatusOr<CacheName> ParseCacheName(absl::string_view text);

}  // namespace ridgeline::cli
