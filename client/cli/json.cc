#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/cli/document.h"
#include "client/cli/machine_text.h"

namespace ridgeline::cli {
namespace {

std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          absl::StrAppendFormat(&out, "\\u%04x", c);
        } else {
          out += c;
        }
    }
  }
  out += '"';
  return out;
}

struct ToJson {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(const std::string& text) const { return Quoted(text); }
  std::string operator()(bool truth) const { return truth ? "true" : "false"; }
  std::string operator()(std::int64_t number) const { return absl::StrCat(number); }
  std::string operator()(double number) const {
    std::string text = ShortestText(number);
    return text.empty() ? "null" : text;
  }
  std::string operator()(const std::vector<std::int64_t>& shape) const {
    return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
  }
};

std::string Member(absl::string_view key, const Value& value) {
  return absl::StrCat(Quoted(key), ": ", std::visit(ToJson(), value.content));
}

std::string RowObject(const Rows& rows, const std::vector<Value>& row) {
  std::vector<std::string> members;
  for (std::size_t c = 0; c < row.size(); ++c) members.push_back(Member(rows.columns[c].key, row[c]));
  return absl::StrCat("    {", absl::StrJoin(members, ", "), "}");
}

}  // namespace

std::string RenderJson(const Document& document) {
  std::vector<std::string> members;
  for (const Section& section : document.sections) {
    for (const Field& field : section.fields) members.push_back(absl::StrCat("  ", Member(field.key, field.value)));
  }
  if (document.rows.has_value()) {
    std::vector<std::string> objects;
    for (const std::vector<Value>& row : document.rows->values) objects.push_back(RowObject(*document.rows, row));
    members.push_back(absl::StrCat("  ", Quoted(document.rows->key), ": [\n", absl::StrJoin(objects, ",\n"), "\n  ]"));
  }
  return absl::StrCat("{\n", absl::StrJoin(members, ",\n"), "\n}\n");
}

}  // namespace ridgeline::cli
