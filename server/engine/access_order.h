// Who must wait for whom: of two works that use the same thing, one of them changing it, the later one waits until the earlier
// one has ended, be that still in the line or on a lane. Readers wait for no reader.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/engine/task.h"

namespace ridgeline::engine {

// Keeps Task::num_ahead. Not thread-safe.
class AccessOrder {
 public:
  // Behind all that have entered before.
  void Enter(Task& task);
  // The task has ended, wherever it was: those behind it move up.
  void Leave(const Task& task);

  bool empty() const { return lines_.empty(); }

 private:
  struct Entry {
    Task* task;
    bool writes;
  };

  absl::flat_hash_map<std::uint64_t, std::vector<Entry>> lines_;  // by Access::what, in the order of arrival; none is empty
};

}  // namespace ridgeline::engine
