#include "client/cli/document.h"

#include <cstdint>
#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace ridgeline::cli {
namespace {

// Two settings for everybody, one for programs only, and a comparison with a refused row.
Document Example() {
  Document document;
  document.heading = "a device";
  document.picture = {"  ██··"};
  document.notes = {"4,096 tokens, standard, refused: RESOURCE_EXHAUSTED: \"too large\", really"};
  document.sections.push_back({"Problem",
                               {{"query_shape", "query", std::vector<std::int64_t>{1, 128, 8, 64}},
                                {"mask", "mask, which hides", "causal, window"},
                                {"cached", "cached", true}}});
  document.sections.push_back({"", {{"runs", "", std::int64_t{5}}}});
  document.rows = Rows{"results",
                       {{"tokens", "tokens", /*groups=*/true},
                        {"algorithm", "algorithm"},
                        {"kernel_time_seconds", "kernel time"},
                        {"workspace_bytes", "workspace"},
                        {"speed_up", "speed-up"},
                        {"error", ""}},
                       {}};
  const std::int64_t short_tokens = 128, long_tokens = 4096;
  Value speed_up(1.5, Unit::kRatio);
  speed_up.tone = Tone::kGood;
  document.rows->values = {
      {short_tokens, "standard", {1.5e-3, Unit::kSeconds}, {std::int64_t{65536}, Unit::kBytes}, Value::Missing(""), {}},
      {short_tokens, "flash", {1e-3, Unit::kSeconds}, {std::int64_t{512}, Unit::kBytes}, speed_up, {}},
      {long_tokens, "standard", Value::Missing("refused", Tone::kBad), {}, Value::Missing(""), "\"too large\", really"},
      {long_tokens, "flash", {0.25, Unit::kSeconds}, {std::int64_t{512}, Unit::kBytes}, {}, {}}};
  return document;
}

TEST(RenderTableTest, AlignsByWhatTheEyeSees) {
  EXPECT_EQ(RenderTable(Example(), /*colour=*/false),
            "a device\n"
            "\n"
            "  ██··\n"
            "\n"
            "Problem\n"
            "  query              1 × 128 × 8 × 64\n"
            "  mask, which hides  causal, window\n"
            "  cached             yes\n"
            "\n"
            "  tokens  algorithm  kernel time  workspace  speed-up\n"
            "  ──────  ─────────  ───────────  ─────────  ────────\n"
            "     128  standard       1.50 ms   64.0 KiB\n"
            "          flash          1.00 ms      512 B    1.50 ×\n"
            "   4,096  standard       refused          —\n"
            "          flash           250 ms      512 B         —\n"
            "\n"
            "4,096 tokens, standard, refused: RESOURCE_EXHAUSTED: \"too large\", really\n");
}

TEST(RenderTableTest, ColourChangesNoColumn) {
  std::string coloured = RenderTable(Example(), /*colour=*/true);
  EXPECT_NE(coloured.find("\x1b[32m1.50 ×\x1b[0m"), std::string::npos);
  EXPECT_NE(coloured.find("\x1b[33mrefused\x1b[0m"), std::string::npos);
  std::string plain;
  for (std::size_t i = 0; i < coloured.size(); ++i) {
    if (coloured[i] == '\x1b') {
      i = coloured.find('m', i);
    } else {
      plain += coloured[i];
    }
  }
  EXPECT_EQ(plain, RenderTable(Example(), /*colour=*/false));
}

TEST(RenderJsonTest, IsOneObjectWithPlainNumbers) {
  EXPECT_EQ(RenderJson(Example()), R"({
  "query_shape": [1, 128, 8, 64],
  "mask": "causal, window",
  "cached": true,
  "runs": 5,
  "results": [
    {"tokens": 128, "algorithm": "standard", "kernel_time_seconds": 0.0015, "workspace_bytes": 65536, "speed_up": null, "error": null},
    {"tokens": 128, "algorithm": "flash", "kernel_time_seconds": 0.001, "workspace_bytes": 512, "speed_up": 1.5, "error": null},
    {"tokens": 4096, "algorithm": "standard", "kernel_time_seconds": null, "workspace_bytes": null, "speed_up": null, "error": "\"too large\", really"},
    {"tokens": 4096, "algorithm": "flash", "kernel_time_seconds": 0.25, "workspace_bytes": 512, "speed_up": null, "error": null}
  ]
}
)");
}

TEST(RenderJsonTest, EscapesTextAndLeavesOutWhatJsonLacks) {
  Document document;
  document.sections.push_back(
      {"",
       {{"text", "", "a\"b\\c\nd\te\x01 µ"}, {"infinite", "", std::numeric_limits<double>::infinity()}, {"tiny", "", 5e-324}}});
  EXPECT_EQ(RenderJson(document),
            "{\n"
            "  \"text\": \"a\\\"b\\\\c\\nd\\u0009e\\u0001 µ\",\n"
            "  \"infinite\": null,\n"
            "  \"tiny\": 5e-324\n"
            "}\n");
}

TEST(RenderCsvTest, RepeatsTheFieldsInEveryRow) {
  EXPECT_EQ(RenderCsv(Example()),
            "query_shape,mask,cached,runs,tokens,algorithm,kernel_time_seconds,workspace_bytes,speed_up,error\n"
            "1x128x8x64,\"causal, window\",true,5,128,standard,0.0015,65536,,\n"
            "1x128x8x64,\"causal, window\",true,5,128,flash,0.001,512,1.5,\n"
            "1x128x8x64,\"causal, window\",true,5,4096,standard,,,,\"\"\"too large\"\", really\"\n"
            "1x128x8x64,\"causal, window\",true,5,4096,flash,0.25,512,,\n");
}

TEST(RenderCsvTest, WithoutRowsIsOneLine) {
  Document document;
  document.sections.push_back({"", {{"a", "", std::int64_t{1}}, {"b", "", false}}});
  EXPECT_EQ(RenderCsv(document), "a,b\n1,false\n");
}

}  // namespace
}  // namespace ridgeline::cli
