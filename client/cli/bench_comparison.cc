#include "client/cli/bench_comparison.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

namespace ridgeline::cli {
namespace {

using google::protobuf::Struct;

// Below it, a change that the samples do tell apart is still no news: two runs on a busy machine differ by more.
constexpr double kLeastChange = 0.03;

double NumberIn(const Struct& object, const char* name) {
  const auto found = object.fields().find(name);
  return found == object.fields().end() ? 0 : found->second.number_value();
}

std::string TextOf(const google::protobuf::Value& value) {
  if (value.has_string_value()) return value.string_value();
  return value.has_number_value() ? absl::StrCat(static_cast<std::int64_t>(value.number_value())) : "";
}

std::string ChangeText(Change change) {
  return change == Change::kNoise ? "within noise" : change == Change::kSlower ? "SLOWER" : "faster";
}

Value ChangeValue(Change change) {
  Value value = ChangeText(change);
  value.tone = change == Change::kNoise ? Tone::kPlain : change == Change::kSlower ? Tone::kBad : Tone::kGood;
  return value;
}

}  // namespace

Change Compare(const Spread& before, const Spread& now) {
  if (std::abs(now.median / before.median - 1) <= kLeastChange) return Change::kNoise;
  if (now.p5 > before.p95) return Change::kSlower;
  return now.p95 < before.p5 ? Change::kFaster : Change::kNoise;
}

absl::StatusOr<EarlierRun> EarlierRun::Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::InvalidArgumentError(absl::StrCat(path, " can't be read"));
  return Parse(std::string(std::istreambuf_iterator<char>(file), {}), path);
}

absl::StatusOr<EarlierRun> EarlierRun::Parse(const std::string& json, const std::string& path) {
  Struct document;
  if (!google::protobuf::util::JsonStringToMessage(json, &document).ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no JSON; `ridgeline bench --format=json` writes what is needed"));
  }
  EarlierRun run;
  const auto device = document.fields().find("device");
  if (device != document.fields().end()) run.device_ = device->second.string_value();
  const auto points = document.fields().find("points");
  if (points != document.fields().end()) {
    for (const google::protobuf::Value& point : points->second.list_value().values()) {
      const Struct& object = point.struct_value();
      Row row{.members = {},
              .spread = {NumberIn(object, "median_seconds"), NumberIn(object, "p5_seconds"), NumberIn(object, "p95_seconds")}};
      if (row.spread.median <= 0) continue;
      for (const auto& [name, value] : object.fields()) row.members[name] = TextOf(value);
      run.rows_.push_back(std::move(row));
    }
  }
  if (!run.rows_.empty()) return run;
  return absl::InvalidArgumentError(absl::StrCat(path, " has no measured points; `ridgeline bench --format=json` writes them"));
}

const Spread* EarlierRun::Find(const std::string& benchmark,
                               const google::protobuf::Map<std::string, std::string>& axis_values) const {
  const auto has = [](const Row& row, const std::string& name, const std::string& value) {
    const auto found = row.members.find(name);
    return found != row.members.end() && found->second == value;
  };
  for (const Row& row : rows_) {
    const bool same =
        has(row, "benchmark", benchmark) && std::all_of(axis_values.begin(), axis_values.end(),
                                                        [&](const auto& axis) { return has(row, axis.first, axis.second); });
    if (same) return &row.spread;
  }
  return nullptr;
}

Comparison CompareRuns(const EarlierRun& before, const std::vector<BenchmarkRun>& now) {
  Comparison comparison;
  Document& document = comparison.document;
  document.heading = "Beside the earlier run";
  document.rows = Rows{"comparison",
                       {{"benchmark", "benchmark", /*groups=*/true},
                        {"point", "point"},
                        {"before_median_seconds", "before"},
                        {"median_seconds", "now"},
                        {"change", "now / before"},
                        {"verdict", "verdict"}},
                       {}};
  int num_unmatched = 0;
  for (const BenchmarkRun& run : now) {
    for (const v1::BenchmarkPoint& point : run.points) {
      const Spread* const old = before.Find(run.description.name(), point.axis_values());
      if (!point.skipped_reason().empty() || old == nullptr) {
        ++num_unmatched;
        continue;
      }
      const v1::Statistics& statistics = point.statistics();
      const Change change = Compare(*old, {statistics.median(), statistics.p5(), statistics.p95()});
      comparison.num_slower += change == Change::kSlower ? 1 : 0;
      comparison.num_faster += change == Change::kFaster ? 1 : 0;
      document.rows->values.push_back({run.description.name(),
                                       AxisText(run.description, point.axis_values()),
                                       {old->median, Unit::kSeconds},
                                       {statistics.median(), Unit::kSeconds},
                                       {statistics.median() / old->median, Unit::kRatio},
                                       ChangeValue(change)});
    }
  }
  document.notes.push_back(
      absl::StrCat(comparison.num_slower, " slower, ", comparison.num_faster, " faster, ",
                   static_cast<int>(document.rows->values.size()) - comparison.num_slower - comparison.num_faster,
                   " within noise: the middle 90 % of the samples of both runs touch, or the medians are within 3 %"));
  if (num_unmatched > 0) document.notes.push_back(absl::StrCat(num_unmatched, " points are in one of the runs only"));
  return comparison;
}

}  // namespace ridgeline::cli
