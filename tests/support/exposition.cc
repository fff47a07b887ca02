#include "tests/support/exposition.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ridgeline::support {
namespace {

// `a="b",le="0.1"`: adds the names but le to `names`; returns the text without le.
std::string TakeLabels(absl::string_view text, std::set<std::string>& names) {
  std::string kept;
  while (!text.empty()) {
    const std::size_t equals = text.find("=\"");
    if (equals == absl::string_view::npos) break;
    std::size_t end = equals + 2;
    while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
    const absl::string_view name = text.substr(0, equals);
    if (name != "le") {
      names.emplace(name);
      kept.append(text.data(), end + 1).append(",");
    }
    text.remove_prefix(std::min(end + 1, text.size()));
    absl::ConsumePrefix(&text, ",");
  }
  return kept;
}

}  // namespace

Exposition ParseExposition(absl::string_view text) {
  Exposition families;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const bool is_help = absl::ConsumePrefix(&line, "# HELP ");
    if (is_help || absl::ConsumePrefix(&line, "# TYPE ")) {
      const std::pair<std::string, std::string> entry = absl::StrSplit(line, absl::MaxSplits(' ', 1));
      (is_help ? families[entry.first].help : families[entry.first].type) = entry.second;
      continue;
    }
    const std::size_t name_end = line.find_first_of("{ ");
    if (name_end == absl::string_view::npos || absl::StartsWith(line, "#")) continue;
    absl::string_view name = line.substr(0, name_end);
    bool is_bucket = false;
    for (const char* suffix : {"_bucket", "_sum", "_count"}) {
      const absl::string_view base = absl::StripSuffix(name, suffix);
      const auto family = families.find(std::string(base));
      if (base == name || family == families.end() || family->second.type != "histogram") continue;
      name = base;
      is_bucket = absl::string_view(suffix) == "_bucket";
      break;
    }
    MetricFamily& family = families[std::string(name)];
    ++family.num_samples;
    std::string series;
    if (line[name_end] == '{') series = TakeLabels(line.substr(name_end + 1, line.rfind('}') - name_end - 1), family.labels);
    if (is_bucket) ++family.buckets[series];
  }
  return families;
}

std::optional<double> SampleOf(absl::string_view text, absl::string_view series) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    double value = 0;
    if (absl::ConsumePrefix(&line, series) && absl::ConsumePrefix(&line, " ") && absl::SimpleAtod(line, &value)) return value;
  }
  return std::nullopt;
}

std::vector<std::string> MarkdownCells(absl::string_view line) {
  line = absl::StripAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&line, "|") || !absl::ConsumeSuffix(&line, "|")) return {};
  std::vector<std::string> cells;
  for (const absl::string_view cell : absl::StrSplit(line, '|')) cells.emplace_back(absl::StripAsciiWhitespace(cell));
  return cells;
}

}  // namespace ridgeline::support
