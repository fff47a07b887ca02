// Plots as SVG, for pages without scripts. Colours, fonts and line styles are the page's (report_style.h): series n has the
// class s<n>. A point is a group of class "point" with its name as <title>, so that pointing at it tells it.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ridgeline::cli {

// For HTML's and SVG's text and attributes.
std::string EscapeMarkup(const std::string& text);

struct PlotPoint {
  double x, y;
  std::string name;
  bool labelled = false;  // its series' name stands beside it
};

struct PlotSeries {
  std::string name;
  std::vector<PlotPoint> points;  // from left to right
  bool joined = true;             // by a line
};

// A line without points, e.g. a roof: from corner to corner.
struct PlotGuide {
  std::string name;
  std::vector<std::pair<double, double>> corners;
  bool dashed = false;
  std::string label = "";  // beside its right end; may be empty
};

using TickText = std::function<std::string(double value)>;

// x is logarithmic; y is too, if its values span more than a factor of 12, else it begins at 0.
struct LinePlot {
  std::string description;  // for those who can't see it
  std::string x_label, y_label;
  TickText x_text, y_text;
  std::vector<PlotSeries> series;
  std::vector<PlotGuide> guides = {};
};

// Values above 0 only: others have no place on a logarithm, and are left out. Empty if nothing is left.
std::string RenderLinePlot(const LinePlot& plot);

struct Bar {
  std::string name;
  double value;
};

// Bars from the left, one below the other, with their values behind them.
struct BarPlot {
  std::string description;
  TickText text;
  std::vector<Bar> bars;
};

std::string RenderBarPlot(const BarPlot& plot);

// What stands for what: one entry for each series, then for each guide.
std::string RenderLegend(const std::vector<PlotSeries>& series, const std::vector<PlotGuide>& guides = {});

}  // namespace ridgeline::cli
