#include "server/engine/access_order.h"

#include <algorithm>

namespace ridgeline::engine {

void AccessOrder::Enter(Task& task) {
  for (const Access& access : task.traits.accesses) {
    std::vector<Entry>& line = lines_[access.what];
    // A task may name one thing twice, as two things can look the same; it doesn't wait for itself.
    task.num_ahead += static_cast<int>(std::count_if(line.begin(), line.end(), [&](const Entry& earlier) {
      return earlier.task != &task && (earlier.writes || access.writes);
    }));
    line.push_back({&task, access.writes});
  }
}

void AccessOrder::Leave(const Task& task) {
  for (const Access& access : task.traits.accesses) {
    const auto found = lines_.find(access.what);
    std::vector<Entry>& line = found->second;
    const auto own = std::find_if(line.begin(), line.end(), [&](const Entry& entry) { return entry.task == &task; });
    for (auto later = own + 1; later != line.end(); ++later) {
      if (later->task != &task && (own->writes || later->writes)) --later->task->num_ahead;
    }
    line.erase(own);
    if (line.empty()) lines_.erase(found);
  }
}

}  // namespace ridgeline::engine
