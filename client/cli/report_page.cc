#include "client/cli/report_page.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cli/arguments.h"
#include "client/cli/bench_document.h"
#include "client/cli/document.h"
#include "client/cli/report_style.h"
#include "client/cli/svg_plot.h"
#include "client/cli/units.h"

namespace ridgeline::cli {
namespace {

using v1::BenchmarkPoint;

std::string Element(const std::string& tag, const std::string& inner) {
  return absl::StrCat("<", tag, ">", inner, "</", tag, ">");
}

std::string Paragraph(const std::string& text) { return Element("p", EscapeMarkup(text)); }

std::string VerdictMarkup(v1::Verdict verdict) {
  const char* const tone = verdict == v1::VERDICT_BORNE_OUT ? "good" : verdict == v1::VERDICT_NOT_BORNE_OUT ? "bad" : "plain";
  return absl::StrCat("<span class=\"verdict ", tone, "\">", VerdictText(verdict), "</span>");
}

// ---- Plots ------------------------------------------------------------------------------------------------------------------

// A number, or a fraction such as "1/16"; nothing for words.
std::optional<double> NumberOf(const std::string& text) {
  double number = 0;
  if (absl::SimpleAtod(text, &number)) return number;
  if (absl::StartsWith(text, "1/") && absl::SimpleAtod(text.substr(2), &number) && number > 0) return 1 / number;
  return std::nullopt;
}

double ValueOf(const std::string& y, const BenchmarkPoint& point) {
  if (y == "seconds") return point.statistics().median();
  if (y == "bytes_per_second") return point.report().bytes_per_second();
  if (y == "flops_per_second") return point.report().flops_per_second();
  const auto found = point.figures().find(y);
  return found == point.figures().end() ? 0 : found->second;
}

std::string ValueText(const std::string& y, double value) { return ShownText(Value(value, UnitOf(y))); }

// "16.0 KiB" as "16 KiB": ticks are round numbers.
std::string WithoutZeros(std::string text) {
  const std::size_t point = text.find('.');
  if (point == std::string::npos) return text;
  const std::size_t end = std::min(text.find_first_not_of('0', point + 1), text.size());
  if (end == text.size() || text[end] == ' ') text.erase(point, end - point);
  return text;
}

std::string AxisTickText(const std::string& axis, double value) {
  if (UnitOf(axis) == Unit::kBytes) return WithoutZeros(FormatBytes(static_cast<std::int64_t>(value)));
  if (value < 1) return absl::StrCat("1/", std::llround(1 / value));
  return WithoutZeros(FormatNumber(value));
}

// The unit stands in the label, and its prefix alone at the tick: "100 G".
std::string RateTickText(double flops_per_second) {
  return WithoutZeros(std::string(absl::StripSuffix(FormatFlopsPerSecond(flops_per_second), "FLOP/s")));
}

std::string ValueTickText(const std::string& y, double value) {
  return UnitOf(y) == Unit::kFlopsPerSecond ? RateTickText(value) : WithoutZeros(ValueText(y, value));
}

std::string LabelOf(const std::string& name) {
  std::string label = name;
  std::replace(label.begin(), label.end(), '_', ' ');
  return label;
}

// The axes that tell the lines of a plot apart: those but x that have several values.
std::vector<std::string> SeriesAxes(const BenchmarkRun& run) {
  std::vector<std::string> names;
  for (const v1::BenchmarkAxis& axis : run.description.axes()) {
    if (axis.name() == run.description.plot().x_axis()) continue;
    const auto differs = [&](const BenchmarkPoint& point) {
      return point.axis_values().at(axis.name()) != run.points.front().axis_values().at(axis.name());
    };
    if (std::any_of(run.points.begin(), run.points.end(), differs)) names.push_back(axis.name());
  }
  return names;
}

// "read", or "standard, kv_heads=8": words speak for themselves.
std::string SeriesName(const std::vector<std::string>& axes, const BenchmarkPoint& point) {
  std::vector<std::string> parts;
  for (const std::string& axis : axes) {
    const std::string& value = point.axis_values().at(axis);
    parts.push_back(NumberOf(value).has_value() ? absl::StrCat(axis, "=", value) : value);
  }
  return parts.empty() ? "all points" : absl::StrJoin(parts, ", ");
}

std::string PointName(const BenchmarkRun& run, const BenchmarkPoint& point, const std::string& value) {
  return absl::StrCat(AxisText(run.description, point.axis_values()), ": ", value);
}

LinePlot MakeLinePlot(const BenchmarkRun& run) {
  const v1::BenchmarkPlot& wanted = run.description.plot();
  LinePlot plot{
      .description = absl::StrCat(run.description.name(), ": ", LabelOf(wanted.y()), " by ", LabelOf(wanted.x_axis())),
      .x_label = LabelOf(wanted.x_axis()),
      .y_label = UnitOf(wanted.y()) == Unit::kFlopsPerSecond ? "FLOP per second" : LabelOf(wanted.y()),
      .x_text = [axis = wanted.x_axis()](double value) { return AxisTickText(axis, value); },
      .y_text = [y = wanted.y()](double value) { return ValueTickText(y, value); },
      .series = {}};
  const std::vector<std::string> axes = SeriesAxes(run);
  for (const BenchmarkPoint& point : run.points) {
    const std::optional<double> x = NumberOf(point.axis_values().at(wanted.x_axis()));
    const double y = ValueOf(wanted.y(), point);
    if (!x.has_value() || !point.skipped_reason().empty() || !(y > 0)) continue;
    const std::string name = SeriesName(axes, point);
    auto found =
        std::find_if(plot.series.begin(), plot.series.end(), [&](const PlotSeries& each) { return each.name == name; });
    if (found == plot.series.end()) found = plot.series.insert(plot.series.end(), {.name = name, .points = {}});
    found->points.push_back({*x, y, PointName(run, point, ValueText(wanted.y(), y))});
  }
  for (PlotSeries& series : plot.series) {
    std::stable_sort(series.points.begin(), series.points.end(), [](const auto& a, const auto& b) { return a.x < b.x; });
  }
  return plot;
}

std::string BarsOf(const BenchmarkRun& run) {
  const std::string& y = run.description.plot().y();
  BarPlot plot{.description = absl::StrCat(run.description.name(), ": ", LabelOf(y)),
               .text = [y](double value) { return ValueText(y, value); },
               .bars = {}};
  const std::vector<std::string> axes = SeriesAxes(run);
  for (const BenchmarkPoint& point : run.points) {
    if (point.skipped_reason().empty()) plot.bars.push_back({SeriesName(axes, point), ValueOf(y, point)});
  }
  return RenderBarPlot(plot);
}

std::string FigureOf(const BenchmarkRun& run) {
  if (run.points.empty()) return "";
  if (run.description.plot().x_axis().empty()) return Element("figure", BarsOf(run));
  const LinePlot plot = MakeLinePlot(run);
  const std::string svg = RenderLinePlot(plot);
  return svg.empty() ? "" : Element("figure", svg + RenderLegend(plot.series));
}

// ---- The roofline -----------------------------------------------------------------------------------------------------------

// Slope and ceiling that meet at the ridge, from edge to edge.
PlotGuide RoofOf(const std::string& name, double bytes_per_second, double flops_per_second, double least_x, double most_x) {
  const double ridge = flops_per_second / bytes_per_second;
  PlotGuide guide{.name = absl::StrCat(name, ", ", FormatFlopsPerSecond(flops_per_second)), .corners = {}};
  guide.corners.emplace_back(least_x, std::min(flops_per_second, least_x * bytes_per_second));
  if (ridge > least_x && ridge < most_x) guide.corners.emplace_back(ridge, flops_per_second);
  guide.corners.emplace_back(most_x, std::min(flops_per_second, most_x * bytes_per_second));
  return guide;
}

// Measured roofs bear their type's name; those in theory lie close to them, and have it only where nothing was measured.
std::vector<PlotGuide> RoofsOf(const v1::Roofline& roofline, double least_x, double most_x) {
  std::vector<PlotGuide> guides;
  for (const v1::ComputeRoof& roof : roofline.compute_roofs()) {
    const std::string type = DataTypeName(roof.data_type());
    const bool is_measured = roofline.bytes_per_second() > 0 && roof.flops_per_second() > 0;
    if (is_measured) {
      guides.push_back(RoofOf(type, roofline.bytes_per_second(), roof.flops_per_second(), least_x, most_x));
      guides.back().label = type;
    }
    // Where the hardware's bandwidth is not told, the measured one carries the theoretical ceiling.
    const double bandwidth =
        roofline.theoretical_bytes_per_second() > 0 ? roofline.theoretical_bytes_per_second() : roofline.bytes_per_second();
    if (bandwidth > 0 && roof.theoretical_flops_per_second() > 0) {
      guides.push_back(
          RoofOf(absl::StrCat(type, " in theory"), bandwidth, roof.theoretical_flops_per_second(), least_x, most_x));
      guides.back().dashed = true;
      if (!is_measured) guides.back().label = type;
    }
  }
  return guides;
}

// Points of every benchmark that both computes and moves data; the fastest of each bears its name.
std::vector<PlotSeries> PointsOnRoofline(const std::vector<BenchmarkRun>& runs) {
  std::vector<PlotSeries> all;
  for (const BenchmarkRun& run : runs) {
    PlotSeries series{.name = run.description.name(), .points = {}, .joined = false};
    for (const BenchmarkPoint& point : run.points) {
      const v1::ExecutionReport& report = point.report();
      if (!(report.arithmetic_intensity() > 0 && report.flops_per_second() > 0)) continue;
      series.points.push_back(
          {report.arithmetic_intensity(), report.flops_per_second(),
           absl::StrCat(run.description.name(), ", ", PointName(run, point, FormatFlopsPerSecond(report.flops_per_second())))});
    }
    if (series.points.empty()) continue;
    std::max_element(series.points.begin(), series.points.end(), [](const auto& a, const auto& b) {
      return a.y < b.y;
    })->labelled = true;
    all.push_back(std::move(series));
  }
  return all;
}

std::string RooflineSection(const ReportContent& content) {
  std::vector<PlotSeries> series = PointsOnRoofline(content.runs);
  double least = 1.0 / 16, most = 1024;
  for (const PlotSeries& each : series) {
    for (const PlotPoint& point : each.points) {
      least = std::min(least, point.x);
      most = std::max(most, point.x);
    }
  }
  const LinePlot plot{.description = "roofline: arithmetic rate by arithmetic intensity, with the device's roofs",
                      .x_label = "arithmetic intensity, FLOP per byte",
                      .y_label = "arithmetic rate, FLOP per second",
                      .x_text = [](double value) { return AxisTickText("", value); },
                      .y_text = &RateTickText,
                      .series = series,
                      .guides = RoofsOf(content.roofline, least, most)};
  const std::string svg = RenderLinePlot(plot);
  return absl::StrCat(
      "<section id=\"roofline-plot\"><h2>Roofline</h2>",
      Paragraph(
          "Bandwidth bounds what is left of the ridge, arithmetic what is right of it. Lines: roofs as measured at the "
          "daemon's "
          "start; dashed: what the hardware's description promises, where it says anything. A point is one measurement; what "
          "stays in a cache may lie above the slope, which is memory's."),
      svg.empty() ? Paragraph("No benchmark of this report has a place on it.")
                  : Element("figure", svg + RenderLegend(series, plot.guides)),
      "</section>");
}

// ---- Tables and text --------------------------------------------------------------------------------------------------------

bool IsNumeric(const Value& value) {
  return std::holds_alternative<std::int64_t>(value.content) || std::holds_alternative<double>(value.content);
}

std::string TableOf(const Rows& rows) {
  std::vector<std::size_t> shown;
  std::string head;
  for (std::size_t c = 0; c < rows.columns.size(); ++c) {
    if (rows.columns[c].label.empty()) continue;
    shown.push_back(c);
    const bool numeric =
        std::any_of(rows.values.begin(), rows.values.end(), [&](const auto& row) { return IsNumeric(row[c]); });
    absl::StrAppend(&head, numeric ? "<th class=\"number\">" : "<th>", EscapeMarkup(LabelOf(rows.columns[c].label)), "</th>");
  }
  std::string body;
  for (const std::vector<Value>& row : rows.values) {
    body += "<tr>";
    for (const std::size_t c : shown) {
      absl::StrAppend(&body, IsNumeric(row[c]) ? "<td class=\"number\">" : "<td>", EscapeMarkup(ShownText(row[c])), "</td>");
    }
    body += "</tr>";
  }
  return absl::StrCat("<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>", head, "</tr></thead><tbody>", body,
                      "</tbody></table></div>");
}

std::string FindingsOf(const v1::BenchmarkSummary& summary) {
  if (summary.findings().empty()) return "";
  std::string items;
  for (const v1::Finding& finding : summary.findings()) {
    absl::StrAppend(&items, "<dt>", EscapeMarkup(LabelOf(finding.name())), "</dt><dd>",
                    EscapeMarkup(ValueText(finding.name(), finding.value())), " <span class=\"soft\">",
                    EscapeMarkup(finding.description()), "</span></dd>");
  }
  return Element("dl", items);
}

std::string SectionOf(const BenchmarkRun& run) {
  const Document document = RunDocument(run);
  std::string notes;
  for (const std::string& line : document.notes) absl::StrAppend(&notes, notes.empty() ? "" : " ", line);
  return absl::StrCat("<section id=\"", EscapeMarkup(run.description.name()), "\"><h2>",
                      EscapeMarkup(LabelOf(run.description.name())), "</h2>", Paragraph(run.description.description()), "<p>",
                      VerdictMarkup(run.summary.verdict()), ": ", EscapeMarkup(run.summary.explanation()), ".</p>",
                      FigureOf(run), FindingsOf(run.summary), TableOf(*document.rows), "<p class=\"soft\">",
                      EscapeMarkup(notes), "</p></section>");
}

std::string OverviewSection(const ReportContent& content) {
  std::string rows;
  for (const BenchmarkRun& run : content.runs) {
    const std::string name = EscapeMarkup(run.description.name());
    absl::StrAppend(&rows, "<tr><td><a href=\"#", name, "\">", EscapeMarkup(LabelOf(run.description.name())), "</a></td><td>",
                    VerdictMarkup(run.summary.verdict()), "</td><td class=\"wide\">", EscapeMarkup(run.summary.explanation()),
                    "</td></tr>");
  }
  for (const v1::BenchmarkDescription& description : content.unsupported) {
    absl::StrAppend(&rows, "<tr><td>", EscapeMarkup(LabelOf(description.name())),
                    "</td><td class=\"soft\">not on this device</td><td class=\"wide soft\">",
                    EscapeMarkup(description.unsupported_reason()), "</td></tr>");
  }
  return absl::StrCat("<section id=\"overview\"><h2>What this device bears out</h2><table class=\"overview\"><tbody>", rows,
                      "</tbody></table></section>");
}

std::string DeviceSection(const ReportContent& content) {
  const v1::Device& device = content.device;
  std::string items;
  const auto add = [&](const std::string& name, const std::string& value) {
    absl::StrAppend(&items, "<dt>", EscapeMarkup(name), "</dt><dd>", EscapeMarkup(value), "</dd>");
  };
  add(device.type() == v1::DEVICE_TYPE_CUDA ? "multiprocessors" : "worker threads", FormatCount(device.compute_units()));
  add("instruction set", device.instruction_set());
  if (device.memory_bytes() > 0) add("memory", FormatBytes(device.memory_bytes()));
  if (device.l1_cache_bytes() > 0) add("L1 data cache", FormatBytes(device.l1_cache_bytes()));
  if (device.l2_cache_bytes() > 0) add("L2 cache", FormatBytes(device.l2_cache_bytes()));
  if (device.l3_cache_bytes() > 0) add("L3 cache", FormatBytes(device.l3_cache_bytes()));
  if (content.roofline.bytes_per_second() > 0)
    add("measured bandwidth", FormatBytesPerSecond(content.roofline.bytes_per_second()));
  for (const v1::ComputeRoof& roof : content.roofline.compute_roofs()) {
    add(absl::StrCat("measured ", DataTypeName(roof.data_type())),
        absl::StrCat(FormatFlopsPerSecond(roof.flops_per_second()), ", ridge at ",
                     FormatNumber(roof.ridge_point_flops_per_byte()), " FLOP/B"));
  }
  add("daemon", device.server_version());
  return absl::StrCat("<section id=\"device\"><h2>Device</h2><dl>", items, "</dl></section>");
}

}  // namespace

std::string RenderReport(const ReportContent& content) {
  const std::string name = EscapeMarkup(content.device.name());
  const std::string time = absl::FormatTime("%Y-%m-%d %H:%M UTC", content.time, absl::UTCTimeZone());
  std::string sections = absl::StrCat(DeviceSection(content), OverviewSection(content), RooflineSection(content));
  for (const BenchmarkRun& run : content.runs) sections += SectionOf(run);
  return absl::StrCat("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">",
                      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">", "<title>Ridgeline: ", name,
                      "</title><style>", kReportStyle, "</style></head>\n<body><h1>", name,
                      "</h1><p class=\"soft\">Measured by Ridgeline, ", time, "</p>\n", sections, "</body></html>\n");
}

}  // namespace ridgeline::cli
