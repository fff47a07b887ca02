// The text that a Prometheus server scrapes, taken apart.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ridgeline::support {

// All series of one name.
struct MetricFamily {
  std::string type;  // "counter", "gauge", "histogram"
  std::string help;
  std::set<std::string> labels;                 // of any series; le aside
  std::int64_t num_samples = 0;                 // lines: of a histogram, buckets, sum and count
  std::map<std::string, std::int64_t> buckets;  // of a histogram: their number, by the series' labels but le
};

using Exposition = std::map<std::string, MetricFamily>;  // by name

// Lines that are no exposition are left out.
Exposition ParseExposition(absl::string_view text);

// The value of one series, named as it is written, `name{label="value"}`; nothing if it is not there.
std::optional<double> SampleOf(absl::string_view text, absl::string_view series);

// A table row of Markdown, "| a | b |", as its cells without the space around them; empty if `line` is none.
std::vector<std::string> MarkdownCells(absl::string_view line);

}  // namespace ridgeline::support
