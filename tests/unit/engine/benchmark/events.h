// What a benchmark told, sorted.
#pragma once

#include <variant>
#include <vector>

#include "server/engine/benchmark/benchmark.h"

namespace ridgeline::engine::benchmark {

struct Told {
  std::vector<Progress> progress;
  std::vector<Point> points;
  std::vector<Summary> summaries;

  void Add(const Event& event) {
    if (const auto* const each = std::get_if<Progress>(&event)) progress.push_back(*each);
    if (const auto* const each = std::get_if<Point>(&event)) points.push_back(*each);
    if (const auto* const each = std::get_if<Summary>(&event)) summaries.push_back(*each);
  }
};

}  // namespace ridgeline::engine::benchmark
