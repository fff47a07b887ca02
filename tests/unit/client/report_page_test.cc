// The report: its plots have the points, where they belong, and nothing that came from outside is markup.
#include "client/cli/report_page.h"

#include <cmath>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/svg_plot.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/made_up_benchmark.h"

namespace ridgeline::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

struct Circle {
  std::string title;
  double x, y;
};

// The points of the first series, which are circles.
std::vector<Circle> Circles(const std::string& svg) {
  static const std::regex kPoint(R"re(<g class="point"><title>([^<]*)</title><circle cx="([\d.]+)" cy="([\d.]+)")re");
  std::vector<Circle> circles;
  for (auto match = std::sregex_iterator(svg.begin(), svg.end(), kPoint); match != std::sregex_iterator(); ++match) {
    circles.push_back({(*match)[1], std::stod((*match)[2]), std::stod((*match)[3])});
  }
  return circles;
}

LinePlot PlotOf(std::vector<PlotPoint> points) {
  return {.description = "a test",
          .x_label = "x",
          .y_label = "y",
          .x_text = [](double value) { return absl::StrCat(value); },
          .y_text = [](double value) { return absl::StrCat(value); },
          .series = {{.name = "only", .points = std::move(points)}}};
}

TEST(SvgPlotTest, EveryPointIsThereWithItsName) {
  const auto circles = Circles(RenderLinePlot(PlotOf({{1, 10, "first"}, {2, 20, "second"}, {4, 1000, "third"}})));
  ASSERT_THAT(circles, SizeIs(3));
  EXPECT_EQ(circles[0].title, "first");
  EXPECT_EQ(circles[2].title, "third");
}

TEST(SvgPlotTest, EqualFactorsAreEqualDistances) {
  const auto circles = Circles(RenderLinePlot(PlotOf({{1, 1, ""}, {4, 100, ""}, {16, 10000, ""}})));
  ASSERT_THAT(circles, SizeIs(3));
  EXPECT_NEAR(circles[1].x - circles[0].x, circles[2].x - circles[1].x, 0.2);
  EXPECT_NEAR(circles[1].y - circles[0].y, circles[2].y - circles[1].y, 0.2);
  EXPECT_LT(circles[2].y, circles[0].y) << "larger is higher";
}

TEST(SvgPlotTest, ValuesOfOneMagnitudeBeginAtZero) {
  const auto circles = Circles(RenderLinePlot(PlotOf({{1, 5, ""}, {2, 10, ""}})));
  const std::string svg = RenderLinePlot(PlotOf({{1, 5, ""}, {2, 10, ""}}));
  EXPECT_THAT(svg, HasSubstr(">0</text>"));
  // 356 is the bottom: half of the value is half of the height.
  EXPECT_NEAR((356 - circles[0].y) * 2, 356 - circles[1].y, 0.3);
}

TEST(SvgPlotTest, WhatHasNoPlaceOnALogarithmIsLeftOut) {
  EXPECT_THAT(Circles(RenderLinePlot(PlotOf({{0, 1, ""}, {1, 0, ""}, {-1, 5, ""}, {2, 3, "kept"}, {NAN, 1, ""}}))), SizeIs(1));
  EXPECT_THAT(RenderLinePlot(PlotOf({{0, 1, ""}})), IsEmpty());
  EXPECT_THAT(RenderLinePlot(PlotOf({})), IsEmpty());
}

TEST(SvgPlotTest, ASinglePointIsInThePicture) {
  const auto circles = Circles(RenderLinePlot(PlotOf({{1024, 7, "alone"}})));
  ASSERT_THAT(circles, SizeIs(1));
  EXPECT_GT(circles[0].x, 96);
  EXPECT_LT(circles[0].x, 720);
  EXPECT_TRUE(std::isfinite(circles[0].y));
}

TEST(SvgPlotTest, ManyMagnitudesStillHaveFewTicks) {
  const std::string svg = RenderLinePlot(PlotOf({{1, 1e-12, ""}, {1e12, 1e15, ""}}));
  std::size_t num_ticks = 0;
  for (std::size_t at = svg.find("class=\"tick\""); at != std::string::npos; at = svg.find("class=\"tick\"", at + 1))
    ++num_ticks;
  EXPECT_GE(num_ticks, 6u);
  EXPECT_LE(num_ticks, 18u);
}

TEST(SvgPlotTest, LabelsOfGuidesThatLieCloseMakeWay) {
  LinePlot plot = PlotOf({{1, 1, ""}, {16, 1000, ""}});
  for (const double y : {1000.0, 990.0, 980.0}) {
    plot.guides.push_back({.name = absl::StrCat("roof at ", y), .corners = {{1, y}, {16, y}}, .label = absl::StrCat("at ", y)});
  }
  plot.guides.push_back({.name = "without a label", .corners = {{1, 500}, {16, 500}}, .dashed = true});
  const std::string svg = RenderLinePlot(plot);
  static const std::regex kLabel("<text class=\"guide-label\"[^>]* x=\"([0-9.]+)\" y=\"([0-9.]+)\">([^<]*)");
  std::vector<double> heights;
  std::vector<std::string> labels;
  for (auto match = std::sregex_iterator(svg.begin(), svg.end(), kLabel); match != std::sregex_iterator(); ++match) {
    heights.push_back(std::stod((*match)[2]));
    labels.push_back((*match)[3]);
  }
  EXPECT_THAT(labels, ElementsAre("at 1000", "at 990", "at 980"));
  for (std::size_t i = 1; i < heights.size(); ++i) EXPECT_GE(heights[i] - heights[i - 1], 17);
  EXPECT_THAT(RenderLegend(plot.series, plot.guides), HasSubstr("roof at 990")) << "the legend has what the label leaves out";
}

TEST(SvgPlotTest, MarkupIsEscaped) {
  EXPECT_EQ(EscapeMarkup("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
  EXPECT_THAT(RenderLinePlot(PlotOf({{1, 1, "</title><script>"}})), Not(HasSubstr("<script>")));
}

ReportContent Content() {
  ReportContent content;
  content.device.set_name("Fake <Device>");
  content.device.set_compute_units(2);
  content.roofline.set_bytes_per_second(40e9);
  v1::ComputeRoof& roof = *content.roofline.add_compute_roofs();
  roof.set_data_type(v1::DATA_TYPE_FLOAT32);
  roof.set_flops_per_second(200e9);
  roof.set_theoretical_flops_per_second(400e9);
  content.runs = {MadeUpRun()};
  content.unsupported.emplace_back().set_name("divergence");
  content.unsupported.back().set_unsupported_reason("there are no warps");
  content.time = absl::FromUnixSeconds(1'700'000'000);
  return content;
}

// From one id to the end of its section.
std::string SectionWithId(const std::string& page, const std::string& id) {
  const std::size_t begin = page.find(absl::StrCat("<section id=\"", id, "\""));
  return begin == std::string::npos ? "" : page.substr(begin, page.find("</section>", begin) - begin);
}

TEST(ReportPageTest, TheRooflineHasEveryPointThatHasAPlaceOnIt) {
  const std::string section = SectionWithId(RenderReport(Content()), "roofline-plot");
  const auto circles = Circles(section);
  ASSERT_THAT(circles, SizeIs(2)) << "the skipped point has none";
  EXPECT_THAT(circles[0].title, HasSubstr("made_up, order=up, size_bytes=1024"));
  EXPECT_EQ(circles[0].x, circles[1].x) << "one intensity";
  EXPECT_THAT(section, HasSubstr("<title>float32, 200 GFLOP/s</title>"));
  EXPECT_THAT(section, HasSubstr("<title>float32 in theory, 400 GFLOP/s</title>"));
}

TEST(ReportPageTest, ABenchmarkHasItsPlotItsTableItsClaimAndTheVerdict) {
  const std::string section = SectionWithId(RenderReport(Content()), "made_up");
  EXPECT_THAT(Circles(section), SizeIs(2));
  EXPECT_THAT(section, HasSubstr("It grows with its size."));
  EXPECT_THAT(section, HasSubstr(">borne out</span>: twice the size takes twice the time."));
  EXPECT_THAT(section, HasSubstr("<td class=\"number\">2.00 KiB</td>"));
  EXPECT_THAT(section, HasSubstr("it does not fit"));
  EXPECT_THAT(section, HasSubstr("where it &lt;bends&gt;"));
}

TEST(ReportPageTest, ABenchmarkWithoutAnXAxisHasBars) {
  ReportContent content = Content();
  content.runs[0].description.mutable_plot()->clear_x_axis();
  const std::string section = SectionWithId(RenderReport(content), "made_up");
  EXPECT_THAT(section, HasSubstr("<title>up, size_bytes=2048: 200 µs</title><rect"));
}

TEST(ReportPageTest, ItNeedsNothingFromElsewhereAndTrustsNoName) {
  const std::string page = RenderReport(Content());
  EXPECT_TRUE(absl::StartsWith(page, "<!DOCTYPE html>"));
  for (const char* outside : {"http:", "https:", "<script", "@import", "url(", "<link", "<img", "<Device>"}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  for (const char* look : {"prefers-color-scheme: dark", "@media print", "max-width: 40rem", "name=\"viewport\""}) {
    EXPECT_THAT(page, HasSubstr(look));
  }
}

TEST(ReportPageTest, WhatTheDeviceLacksIsSaid) {
  EXPECT_THAT(SectionWithId(RenderReport(Content()), "overview"), HasSubstr("there are no warps"));
}

TEST(ReportPageTest, WithoutARunThereIsStillAPage) {
  ReportContent content = Content();
  content.runs.clear();
  content.roofline = {};
  EXPECT_THAT(RenderReport(content), HasSubstr("No benchmark of this report has a place on it."));
}

}  // namespace
}  // namespace ridgeline::cli
