#include "client/cli/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace ridgeline::cli {
namespace {

// User units; the page scales the picture to its width.
constexpr double kWidth = 720, kHeight = 420;
constexpr double kLeft = 96, kRight = 24, kTop = 44, kBottom = 64;
constexpr double kGuideLabels = 104;  // in place of kRight, where guides have their names
constexpr double kLabelHeight = 16, kLabelCharacter = 7.5, kGuideLabelHeight = 18;
constexpr double kMark = 4.5;
constexpr std::size_t kMostTicks = 8;
constexpr std::size_t kNumColours = 8, kNumShapes = 4;

constexpr double kBarHeight = 22, kBarGap = 8, kBarLabels = 250, kBarValues = 96;

std::string Number(double value) { return absl::StrFormat("%.1f", value); }

struct Range {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();

  void Include(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
  bool empty() const { return least > most; }
};

// Values to places along one axis.
class Scale {
 public:
  Scale(Range range, bool logarithmic, double from, double to)
      : range_(range), logarithmic_(logarithmic), from_(from), to_(to) {
    if (!logarithmic_) range_.least = 0;
    if (range_.least == range_.most) range_ = {range_.least / 2, range_.most * 2};
  }

  double At(double value) const { return from_ + (to_ - from_) * Share(value); }
  bool Contains(double value) const { return value >= range_.least * (1 - 1e-9) && value <= range_.most * (1 + 1e-9); }
  const Range& range() const { return range_; }
  bool logarithmic() const { return logarithmic_; }

 private:
  double Share(double value) const {
    if (!logarithmic_) return (value - range_.least) / (range_.most - range_.least);
    return std::log(value / range_.least) / std::log(range_.most / range_.least);
  }

  Range range_;
  bool logarithmic_;
  double from_, to_;
};

// Powers of `base`, so few of them that there is room.
std::vector<double> LogarithmicTicks(const Range& range, double base) {
  std::vector<double> ticks;
  for (double step = 1;; ++step) {
    ticks.clear();
    const double factor = std::pow(base, step);
    const double first = std::ceil(std::log(range.least) / std::log(factor) - 1e-9);
    for (double tick = std::pow(factor, first); tick <= range.most * (1 + 1e-9); tick *= factor) ticks.push_back(tick);
    if (ticks.size() <= kMostTicks) return ticks;
  }
}

// 1, 2 or 5 times a power of ten apart.
std::vector<double> LinearTicks(const Range& range) {
  const double rough = range.most / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = power;
  for (const double factor : {2.0, 5.0, 10.0}) {
    if (step < rough) step = factor * power;
  }
  std::vector<double> ticks;
  for (double tick = 0; tick <= range.most * (1 + 1e-9); tick += step) ticks.push_back(tick);
  return ticks;
}

std::vector<double> YTicks(const Scale& scale) {
  if (!scale.logarithmic()) return LinearTicks(scale.range());
  std::vector<double> ticks = LogarithmicTicks(scale.range(), 10);
  return ticks.size() >= 2 ? ticks : LogarithmicTicks(scale.range(), 2);
}

std::string ClassOf(std::size_t series) { return absl::StrCat("s", series % kNumColours); }

// Colours repeat after eight series, shapes after four: together they tell all apart, also without colour.
std::string Mark(std::size_t series, double x, double y) {
  const double r = kMark;
  switch ((series + series / kNumColours) % kNumShapes) {
    case 0:
      return absl::StrFormat("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>", x, y, r);
    case 1:
      return absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>", x - r, y - r, 2 * r, 2 * r);
    case 2:
      return absl::StrFormat("<path d=\"M%.1f %.1fl%.1f %.1fl%.1f %.1fl%.1f %.1fz\"/>", x, y - 1.3 * r, 1.3 * r, 1.3 * r,
                             -1.3 * r, 1.3 * r, -1.3 * r, -1.3 * r);
    default:
      return absl::StrFormat("<path d=\"M%.1f %.1fl%.1f %.1fh%.1fz\"/>", x, y - 1.2 * r, 1.2 * r, 2.2 * r, -2.4 * r);
  }
}

std::string Text(const char* anchor, double x, double y, const std::string& text, const char* css_class = "tick") {
  return absl::StrFormat("<text class=\"%s\" text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>", css_class, anchor, x, y,
                         EscapeMarkup(text));
}

std::string Grid(const LinePlot& plot, double right, const Scale& x, const Scale& y) {
  std::string svg = "<g class=\"grid\">";
  for (const double tick : LogarithmicTicks(x.range(), 2)) {
    const std::string at = Number(x.At(tick));
    absl::StrAppend(&svg, "<line x1=\"", at, "\" x2=\"", at, "\" y1=\"", kTop, "\" y2=\"", kHeight - kBottom, "\"/>",
                    Text("middle", x.At(tick), kHeight - kBottom + 20, plot.x_text(tick)));
  }
  for (const double tick : YTicks(y)) {
    const std::string at = Number(y.At(tick));
    absl::StrAppend(&svg, "<line x1=\"", kLeft, "\" x2=\"", right, "\" y1=\"", at, "\" y2=\"", at, "\"/>",
                    Text("end", kLeft - 8, y.At(tick) + 4, plot.y_text(tick)));
  }
  return absl::StrCat(svg, "</g>", Text("middle", (kLeft + right) / 2, kHeight - 12, plot.x_label, "label"),
                      Text("start", 4, 22, plot.y_label, "label"));
}

// Where labels lie already: one that would cover another moves up or down, or is left out.
class LabelSpace {
 public:
  // The height at which a text that begins, or ends, at `x` may stand, near `y`; nothing if there is no room.
  std::optional<double> Place(bool begins, double x, double y, const std::string& text) {
    const double width = kLabelCharacter * static_cast<double>(text.size());
    const double left = begins ? x : x - width;
    for (const double move : {0.0, -22.0, 16.0, -38.0, 32.0}) {
      if (!IsFree(left, y + move, width)) continue;
      taken_.push_back({left, y + move, width});
      return y + move;
    }
    return std::nullopt;
  }

 private:
  struct Taken {
    double left, y, width;
  };

  bool IsFree(double left, double y, double width) const {
    return y > kTop && y < kHeight - kBottom && std::none_of(taken_.begin(), taken_.end(), [&](const Taken& each) {
             return left < each.left + each.width && each.left < left + width && std::abs(y - each.y) < kLabelHeight;
           });
  }

  std::vector<Taken> taken_;
};

std::string Path(const std::vector<std::pair<double, double>>& places) {
  return absl::StrCat("M", absl::StrJoin(places, "L", [](std::string* out, const auto& place) {
                        absl::StrAppend(out, Number(place.first), " ", Number(place.second));
                      }));
}

std::string Guide(const PlotGuide& guide, const Scale& x, const Scale& y) {
  std::vector<std::pair<double, double>> places;
  for (const auto& [at_x, at_y] : guide.corners) places.emplace_back(x.At(at_x), y.At(at_y));
  return absl::StrCat("<g class=\"guide", guide.dashed ? " dashed" : "", "\"><title>", EscapeMarkup(guide.name),
                      "</title><path d=\"", Path(places), "\"/></g>");
}

// The guides' labels right of their ends, from top to bottom; where ends lie close together, labels make way downwards and a
// line leads to each.
std::string GuideLabels(const std::vector<PlotGuide>& guides, double right, const Scale& y) {
  std::vector<std::pair<double, std::string>> ends;
  for (const PlotGuide& guide : guides) {
    if (!guide.label.empty()) ends.emplace_back(y.At(guide.corners.back().second), guide.label);
  }
  std::sort(ends.begin(), ends.end());
  std::string svg;
  double least = kTop;
  for (const auto& [end, label] : ends) {
    const double middle = std::max(end, least);
    least = middle + kGuideLabelHeight;
    absl::StrAppend(&svg, "<path class=\"leader\" d=\"", Path({{right - 12, end}, {right, end}, {right + 8, middle}}), "\"/>",
                    Text("start", right + 11, middle + 4, label, "guide-label"));
  }
  return svg;
}

std::string Series(std::size_t idx, const PlotSeries& series, const Scale& x, const Scale& y, LabelSpace& space,
                   std::string& labels) {
  std::vector<std::pair<double, double>> places;
  std::string marks;
  for (const PlotPoint& point : series.points) {
    if (!(point.x > 0 && point.y > 0)) continue;
    const double at_x = x.At(point.x), at_y = y.At(point.y);
    places.emplace_back(at_x, at_y);
    absl::StrAppend(&marks, "<g class=\"point\"><title>", EscapeMarkup(point.name), "</title>", Mark(idx, at_x, at_y), "</g>");
    if (point.labelled) {
      const bool is_right = at_x > kWidth * 0.7;
      const double label_x = is_right ? at_x - 9 : at_x + 9;
      const std::optional<double> label_y = space.Place(!is_right, label_x, at_y + 14, series.name);
      if (label_y.has_value()) labels += Text(is_right ? "end" : "start", label_x, *label_y, series.name, "series-label");
    }
  }
  const std::string line =
      series.joined && places.size() > 1 ? absl::StrCat("<path class=\"line\" d=\"", Path(places), "\"/>") : "";
  return absl::StrCat("<g class=\"", ClassOf(idx), "\">", line, marks, "</g>");
}

std::string Svg(double height, const std::string& description, const std::string& body) {
  return absl::StrCat("<svg viewBox=\"0 0 ", kWidth, " ", Number(height), "\" role=\"img\" aria-label=\"",
                      EscapeMarkup(description), "\">", body, "</svg>");
}

}  // namespace

std::string EscapeMarkup(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string RenderLinePlot(const LinePlot& plot) {
  Range x_range, y_range;
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) {
      if (!(point.x > 0 && point.y > 0)) continue;
      x_range.Include(point.x);
      y_range.Include(point.y);
    }
  }
  if (x_range.empty()) return "";
  for (const PlotGuide& guide : plot.guides) {
    for (const auto& [at_x, at_y] : guide.corners) {
      x_range.Include(at_x);
      y_range.Include(at_y);
    }
  }
  const bool has_labels =
      std::any_of(plot.guides.begin(), plot.guides.end(), [](const auto& each) { return !each.label.empty(); });
  const double right = kWidth - (has_labels ? kGuideLabels : kRight);
  const bool logarithmic = y_range.most > 12 * y_range.least;
  const Scale x(x_range, true, kLeft + 12, right - 12);
  const Scale y(y_range, logarithmic, kHeight - kBottom - (logarithmic ? 12 : 0), kTop + 12);
  std::string body = Grid(plot, right, x, y);
  LabelSpace space;
  std::string labels = GuideLabels(plot.guides, right, y);  // over everything else, or points would hide them
  for (const PlotGuide& guide : plot.guides) body += Guide(guide, x, y);
  for (std::size_t i = 0; i < plot.series.size(); ++i) body += Series(i, plot.series[i], x, y, space, labels);
  return Svg(kHeight, plot.description, body + labels);
}

std::string RenderBarPlot(const BarPlot& plot) {
  double most = 0;
  for (const Bar& bar : plot.bars) most = std::max(most, bar.value);
  if (!(most > 0)) return "";
  const double room = kWidth - kBarLabels - kBarValues;
  std::string body;
  double top = kBarGap;
  for (const Bar& bar : plot.bars) {
    const double width = std::max(1.0, room * std::max(0.0, bar.value) / most);
    const double middle = top + kBarHeight / 2 + 4;
    absl::StrAppend(&body, "<g class=\"point s0\"><title>", EscapeMarkup(bar.name), ": ", EscapeMarkup(plot.text(bar.value)),
                    "</title><rect x=\"", kBarLabels, "\" y=\"", Number(top), "\" width=\"", Number(width), "\" height=\"",
                    kBarHeight, "\"/></g>", Text("end", kBarLabels - 8, middle, bar.name),
                    Text("start", kBarLabels + width + 6, middle, plot.text(bar.value)));
    top += kBarHeight + kBarGap;
  }
  return Svg(top, plot.description, body);
}

std::string RenderLegend(const std::vector<PlotSeries>& series, const std::vector<PlotGuide>& guides) {
  std::string html = "<ul class=\"legend\">";
  for (std::size_t i = 0; i < series.size(); ++i) {
    absl::StrAppend(&html, "<li><svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><g class=\"", ClassOf(i),
                    "\"><g class=\"point-key\">", Mark(i, 8, 8), "</g></g></svg>", EscapeMarkup(series[i].name), "</li>");
  }
  for (const PlotGuide& guide : guides) {
    absl::StrAppend(&html, "<li><svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><g class=\"guide",
                    guide.dashed ? " dashed" : "", "\"><path d=\"M0 8h16\"/></g></svg>", EscapeMarkup(guide.name), "</li>");
  }
  return absl::StrCat(html, "</ul>");
}

}  // namespace ridgeline::cli
