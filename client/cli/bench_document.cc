#include "client/cli/bench_document.h"

#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client/cli/help.h"
#include "client/cli/measurement.h"
#include "client/cli/report.h"
#include "client/cli/units.h"

namespace ridgeline::cli {
namespace {

using v1::BenchmarkPoint;

constexpr std::size_t kTextWidth = 100;

// A column of points: its head, and how a point fills it.
struct PointColumn {
  Column head;
  std::function<Value(const BenchmarkPoint& point)> value;
};

bool IsMeasured(const BenchmarkPoint& point) { return point.skipped_reason().empty(); }

// A column of something that only measured points have.
PointColumn Measured(const char* key, const char* label, std::function<Value(const BenchmarkPoint& point)> value) {
  return {{key, label},
          [value = std::move(value)](const BenchmarkPoint& point) { return IsMeasured(point) ? value(point) : Value(); }};
}

Value Positive(double number, Unit unit) { return number > 0 ? Value(number, unit) : Value(); }
Value Positive(std::int64_t number, Unit unit) { return number > 0 ? Value(number, unit) : Value(); }

// Words stay words, though they look like numbers; integers of bytes read better with their unit.
Value AxisValue(const v1::BenchmarkAxis& axis, const BenchmarkPoint& point) {
  const auto found = point.axis_values().find(axis.name());
  if (found == point.axis_values().end()) return {};
  std::int64_t number = 0;
  if (!axis.choices().empty() || !absl::SimpleAtoi(found->second, &number)) return found->second;
  return {number, UnitOf(axis.name())};
}

PointColumn AxisColumn(const v1::BenchmarkAxis& axis, bool groups) {
  return {{axis.name(), axis.name(), groups}, [axis](const BenchmarkPoint& point) { return AxisValue(axis, point); }};
}

// The one value that all points of a run have; empty: they differ.
std::string OnlyValue(const BenchmarkRun& run, const std::string& axis) {
  std::set<std::string> values;
  for (const BenchmarkPoint& point : run.points) values.insert(point.axis_values().at(axis));
  return run.points.size() > 1 && values.size() == 1 ? *values.begin() : "";
}

// A figure that is whole in all points is a count, and shown without decimals.
bool IsCount(absl::Span<const BenchmarkRun> runs, const std::string& name) {
  constexpr double kMostCount = 0x1p53;  // up to which all whole numbers have a double
  for (const BenchmarkRun& run : runs) {
    for (const BenchmarkPoint& point : run.points) {
      const auto found = point.figures().find(name);
      if (found == point.figures().end()) continue;
      if (found->second != std::trunc(found->second) || std::abs(found->second) > kMostCount) return false;
    }
  }
  return UnitOf(name) == Unit::kNone;
}

PointColumn FigureColumn(const std::string& name, bool is_count) {
  return {{name, name}, [name, is_count](const BenchmarkPoint& point) {
            const auto found = point.figures().find(name);
            if (found == point.figures().end()) return Value();
            return is_count ? Value(static_cast<std::int64_t>(found->second)) : Value(found->second, UnitOf(name));
          }};
}

Value FlagsValue(const BenchmarkPoint& point) {
  if (!IsMeasured(point)) return Value::Missing("skipped", Tone::kBad);
  if (point.throttled()) return Value::Missing("throttled", Tone::kBad);
  return point.noisy() ? Value::Missing("noisy") : Value::Missing("");
}

std::vector<PointColumn> MeasuredColumns() {
  const auto statistic = [](double (v1::Statistics::*get)() const) {
    return [get](const BenchmarkPoint& point) { return Value((point.statistics().*get)(), Unit::kSeconds); };
  };
  std::vector<PointColumn> columns;
  columns.push_back(Measured("median_seconds", "median", statistic(&v1::Statistics::median)));
  columns.push_back(Measured("relative_noise", "±", [](const BenchmarkPoint& point) {
    const double noise = point.statistics().relative_noise();
    return std::isfinite(noise) ? Value(noise, Unit::kFraction) : Value();
  }));
  columns.push_back(Measured("bytes_per_second", "bandwidth", [](const BenchmarkPoint& point) {
    return Positive(point.report().bytes_per_second(), Unit::kBytesPerSecond);
  }));
  columns.push_back(Measured("flops_per_second", "arithmetic", [](const BenchmarkPoint& point) {
    return Positive(point.report().flops_per_second(), Unit::kFlopsPerSecond);
  }));
  columns.push_back(Measured("arithmetic_intensity_flops_per_byte", "", [](const BenchmarkPoint& point) {
    return Positive(point.report().arithmetic_intensity(), Unit::kFlopsPerByte);
  }));
  columns.push_back(
      Measured("bound", "bound by", [](const BenchmarkPoint& point) { return BoundValue(point.report().bound()); }));
  columns.push_back(
      Measured("roof_fraction", "of roof", [](const BenchmarkPoint& point) { return RoofFractionValue(point.report()); }));
  columns.push_back(Measured("workspace_bytes", "workspace", [](const BenchmarkPoint& point) {
    return Positive(std::int64_t{point.report().workspace_bytes()}, Unit::kBytes);
  }));
  columns.push_back(Measured("samples", "samples",
                             [](const BenchmarkPoint& point) { return Value(std::int64_t{point.statistics().samples()}); }));
  columns.push_back(Measured("mean_seconds", "", statistic(&v1::Statistics::mean)));
  columns.push_back(Measured("standard_deviation_seconds", "", statistic(&v1::Statistics::standard_deviation)));
  columns.push_back(Measured("minimum_seconds", "", statistic(&v1::Statistics::minimum)));
  columns.push_back(Measured("p5_seconds", "", statistic(&v1::Statistics::p5)));
  columns.push_back(Measured("p95_seconds", "", statistic(&v1::Statistics::p95)));
  columns.push_back(
      Measured("repetitions", "", [](const BenchmarkPoint& point) { return Value(std::int64_t{point.repetitions()}); }));
  columns.push_back(Measured("discarded_samples", "",
                             [](const BenchmarkPoint& point) { return Value(std::int64_t{point.discarded_samples()}); }));
  columns.push_back(
      Measured("flops", "", [](const BenchmarkPoint& point) { return Value(std::int64_t{point.report().flops()}); }));
  columns.push_back(
      Measured("bytes", "", [](const BenchmarkPoint& point) { return Value(std::int64_t{point.report().bytes()}); }));
  columns.push_back(Measured("kernel", "", [](const BenchmarkPoint& point) { return Value(point.report().kernel()); }));
  columns.push_back(Measured("throttled", "", [](const BenchmarkPoint& point) { return Value(point.throttled()); }));
  columns.push_back(Measured("noisy", "", [](const BenchmarkPoint& point) { return Value(point.noisy()); }));
  columns.push_back({{"skipped_reason", ""},
                     [](const BenchmarkPoint& point) { return IsMeasured(point) ? Value() : Value(point.skipped_reason()); }});
  return columns;
}

bool SaysNothing(const Rows& rows, std::size_t column) {
  for (const std::vector<Value>& row : rows.values) {
    const Value& value = row[column];
    if (!std::holds_alternative<std::monostate>(value.content) || value.shown_if_missing == "skipped" ||
        value.shown_if_missing == "throttled" || value.shown_if_missing == "noisy") {
      return false;
    }
  }
  return true;
}

// Columns of one value are for people no column.
void HideColumns(Rows& rows) {
  for (std::size_t c = 0; c < rows.columns.size(); ++c) {
    if (SaysNothing(rows, c)) rows.columns[c].label.clear();
  }
}

std::set<std::string> FiguresOf(const BenchmarkRun& run) {
  std::set<std::string> names;
  for (const BenchmarkPoint& point : run.points) {
    for (const auto& [name, value] : point.figures()) names.insert(name);
  }
  return names;
}

std::vector<PointColumn> ColumnsOf(const BenchmarkRun& run) {
  std::vector<PointColumn> columns;
  for (int i = 0; i < run.description.axes_size(); ++i) {
    columns.push_back(AxisColumn(run.description.axes(i), /*groups=*/i == 0));
    if (!OnlyValue(run, run.description.axes(i).name()).empty()) columns.back().head.label.clear();
  }
  for (PointColumn& column : MeasuredColumns()) columns.push_back(std::move(column));
  for (const std::string& name : FiguresOf(run)) {
    columns.push_back(FigureColumn(name, IsCount(absl::MakeConstSpan(&run, 1), name)));
  }
  columns.push_back({{"flags", "flags"}, &FlagsValue});
  return columns;
}

std::vector<Value> RowOf(const std::vector<PointColumn>& columns, const BenchmarkPoint& point) {
  std::vector<Value> row;
  for (const PointColumn& column : columns) row.push_back(column.value(point));
  return row;
}

void AppendWrapped(std::vector<std::string>& lines, const std::string& text) {
  for (std::string& line : WrapText(text, kTextWidth)) lines.push_back(std::move(line));
}

std::string CountText(const BenchmarkRun& run) {
  const v1::BenchmarkSummary& summary = run.summary;
  std::string text = absl::StrCat(summary.points(), " points in ", FormatSeconds(Seconds(summary.elapsed())));
  if (summary.skipped_points() > 0) absl::StrAppend(&text, ", ", summary.skipped_points(), " skipped");
  if (summary.throttled_points() > 0) absl::StrAppend(&text, ", ", summary.throttled_points(), " throttled");
  if (summary.noisy_points() > 0) {
    absl::StrAppend(&text, ", ", summary.noisy_points(), " noisier than ",
                    FormatFraction(summary.measurement().max_relative_noise()));
  }
  return text;
}

}  // namespace

Unit UnitOf(const std::string& name) {
  if (absl::EndsWith(name, "flops_per_second")) return Unit::kFlopsPerSecond;
  if (absl::EndsWith(name, "bytes_per_second")) return Unit::kBytesPerSecond;
  if (absl::EndsWith(name, "_per_second")) return Unit::kPerSecond;
  if (absl::EndsWith(name, "flops_per_byte")) return Unit::kFlopsPerByte;
  if (absl::EndsWith(name, "_seconds") || absl::StartsWith(name, "seconds_") || name == "seconds") return Unit::kSeconds;
  if (absl::EndsWith(name, "_bytes")) return Unit::kBytes;
  return absl::EndsWith(name, "_share") ? Unit::kFraction : Unit::kNone;
}

std::string VerdictText(v1::Verdict verdict) {
  switch (verdict) {
    case v1::VERDICT_BORNE_OUT:
      return "borne out";
    case v1::VERDICT_NOT_BORNE_OUT:
      return "not borne out";
    default:
      return "not judged";
  }
}

Document ListDocument(const v1::ListBenchmarksResponse& list) {
  Document document;
  document.rows = Rows{"benchmarks", {{"name", "name"}, {"axes", "axes"}, {"description", ""}, {"unsupported_reason", ""}}, {}};
  for (const v1::BenchmarkDescription& benchmark : list.benchmarks()) {
    std::vector<std::string> axes;
    for (const v1::BenchmarkAxis& axis : benchmark.axes()) axes.push_back(axis.name());
    const std::string& reason = benchmark.unsupported_reason();
    document.rows->values.push_back({benchmark.name(),
                                     reason.empty() ? Value(absl::StrJoin(axes, ", ")) : Value::Missing("not on this device"),
                                     benchmark.description(), reason.empty() ? Value() : Value(reason)});
    AppendWrapped(document.notes, absl::StrCat(benchmark.name(), ": ", benchmark.description()));
    if (!reason.empty()) AppendWrapped(document.notes, absl::StrCat("Not on this device: ", reason, "."));
    document.notes.push_back("");
  }
  if (!document.notes.empty()) document.notes.pop_back();
  return document;
}

Document RunDocument(const BenchmarkRun& run) {
  Document document;
  document.heading = run.description.name();
  AppendWrapped(document.picture, run.description.description());
  std::vector<std::string> fixed;
  for (const v1::BenchmarkAxis& axis : run.description.axes()) {
    const std::string value = OnlyValue(run, axis.name());
    if (!value.empty()) fixed.push_back(absl::StrCat(axis.name(), "=", value));
  }
  if (!fixed.empty()) AppendWrapped(document.picture, absl::StrCat("All points: ", absl::StrJoin(fixed, ", "), "."));
  const std::vector<PointColumn> columns = ColumnsOf(run);
  document.rows = Rows{"points", {}, {}};
  for (const PointColumn& column : columns) document.rows->columns.push_back(column.head);
  std::set<std::string> reasons;
  for (const BenchmarkPoint& point : run.points) {
    document.rows->values.push_back(RowOf(columns, point));
    if (!IsMeasured(point) && reasons.insert(point.skipped_reason()).second) {
      AppendWrapped(document.notes, absl::StrCat("Skipped ", AxisText(run.description, point.axis_values()), ": ",
                                                 point.skipped_reason(), "."));
    }
  }
  HideColumns(*document.rows);
  AppendWrapped(document.notes,
                absl::StrCat("The claim is ", VerdictText(run.summary.verdict()), ": ", run.summary.explanation(), "."));
  AppendWrapped(document.notes, absl::StrCat(CountText(run), "; ", run.summary.serving_policy(), "."));
  return document;
}

Document PointsDocument(const std::string& device, const std::vector<BenchmarkRun>& runs) {
  std::vector<PointColumn> columns;
  std::set<std::string> names;
  for (const BenchmarkRun& run : runs) {
    for (const v1::BenchmarkAxis& axis : run.description.axes()) {
      if (names.insert(axis.name()).second) columns.push_back(AxisColumn(axis, false));
    }
  }
  for (PointColumn& column : MeasuredColumns()) columns.push_back(std::move(column));
  std::set<std::string> figures;
  for (const BenchmarkRun& run : runs) figures.merge(FiguresOf(run));
  for (const std::string& name : figures) columns.push_back(FigureColumn(name, IsCount(runs, name)));

  Document document;
  document.sections.push_back({"", {{"device", "", device}}});
  document.rows = Rows{"points", {{"benchmark", "benchmark"}, {"verdict", ""}}, {}};
  for (const PointColumn& column : columns) document.rows->columns.push_back(column.head);
  for (const BenchmarkRun& run : runs) {
    for (const BenchmarkPoint& point : run.points) {
      std::vector<Value> row = {run.description.name(), VerdictText(run.summary.verdict())};
      for (Value& value : RowOf(columns, point)) row.push_back(std::move(value));
      document.rows->values.push_back(std::move(row));
    }
  }
  return document;
}

}  // namespace ridgeline::cli
