// A sequence of a cache. For KvCache alone; the store's mutex guards it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/engine/kv_cache/client_ledger.h"

namespace ridgeline::engine::kv_cache {

// A list of pages and a length for each layer: what is committed. What a use adds it keeps to itself until it commits.
struct Sequence {
  enum class State : std::uint8_t { kListed, kHidden /* of a transfer */, kDeleted, kEvicted };

  std::string id;
  ClientAccount* owner = nullptr;  // null once it is gone
  State state = State::kListed;
  std::vector<std::int32_t> table;    // page ids, in the order of the tokens; as many as the longest layer needs
  std::vector<std::int64_t> lengths;  // tokens of each layer
  absl::Time create_time;
  absl::Time use_time;
  std::int64_t num_readers = 0;  // uses that read it; none while one writes it
  bool is_written = false;       // a use appends to it
  std::list<Sequence*>::iterator place_by_use;

  bool IsGone() const { return state == State::kDeleted || state == State::kEvicted; }
  bool IsBusy() const { return is_written || num_readers > 0; }
  std::int64_t tokens() const { return *std::max_element(lengths.begin(), lengths.end()); }  // of its longest layer
};

}  // namespace ridgeline::engine::kv_cache
