#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "client/cli/document.h"
#include "client/cli/machine_text.h"

namespace ridgeline::cli {
namespace {

// As RFC 4180 quotes.
std::string Quoted(absl::string_view text) {
  if (text.find_first_of(",\"\r\n") == absl::string_view::npos) return std::string(text);
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

struct ToCsv {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(const std::string& text) const { return Quoted(text); }
  std::string operator()(bool truth) const { return truth ? "true" : "false"; }
  std::string operator()(std::int64_t number) const { return absl::StrCat(number); }
  std::string operator()(double number) const { return ShortestText(number); }
  std::string operator()(const std::vector<std::int64_t>& shape) const { return absl::StrJoin(shape, "x"); }
};

std::string Cell(const Value& value) { return std::visit(ToCsv(), value.content); }

}  // namespace

std::string RenderCsv(const Document& document) {
  std::vector<std::string> header, repeated;
  for (const Section& section : document.sections) {
    for (const Field& field : section.fields) {
      header.push_back(Quoted(field.key));
      repeated.push_back(Cell(field.value));
    }
  }
  std::vector<std::string> lines;
  if (document.rows.has_value()) {
    for (const Column& column : document.rows->columns) header.push_back(Quoted(column.key));
    for (const std::vector<Value>& row : document.rows->values) {
      std::vector<std::string> cells = repeated;
      for (const Value& value : row) cells.push_back(Cell(value));
      lines.push_back(absl::StrJoin(cells, ","));
    }
  } else {
    lines.push_back(absl::StrJoin(repeated, ","));
  }
  lines.insert(lines.begin(), absl::StrJoin(header, ","));
  return absl::StrCat(absl::StrJoin(lines, "\n"), "\n");
}

}  // namespace ridgeline::cli
