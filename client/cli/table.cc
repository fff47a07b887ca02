#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/cli/document.h"
#include "client/cli/units.h"

namespace ridgeline::cli {
namespace {

constexpr char kBold[] = "\x1b[1m";
constexpr char kDim[] = "\x1b[2m";
constexpr char kGreen[] = "\x1b[32m";
constexpr char kYellow[] = "\x1b[33m";
constexpr char kReset[] = "\x1b[0m";
constexpr int kColumnGap = 2;

// Turns a value into what people read.
struct Show {
  Unit unit;
  const std::string& shown_if_missing;

  std::string operator()(std::monostate) const { return shown_if_missing; }
  std::string operator()(const std::string& text) const { return text; }
  std::string operator()(bool truth) const { return truth ? "yes" : "no"; }
  std::string operator()(const std::vector<std::int64_t>& shape) const { return absl::StrJoin(shape, " × "); }
  std::string operator()(std::int64_t number) const {
    if (unit == Unit::kBytes) return FormatBytes(number);
    if (unit == Unit::kNone) return FormatCount(number);
    return (*this)(static_cast<double>(number));
  }
  std::string operator()(double number) const {
    switch (unit) {
      case Unit::kBytes:
        return FormatBytes(static_cast<std::int64_t>(number));
      case Unit::kSeconds:
        return FormatSeconds(number);
      case Unit::kFlops:
        return FormatFlops(number);
      case Unit::kFlopsPerSecond:
        return FormatFlopsPerSecond(number);
      case Unit::kBytesPerSecond:
        return FormatBytesPerSecond(number);
      case Unit::kFlopsPerByte:
        return absl::StrCat(FormatNumber(number), " FLOP/B");
      case Unit::kPerSecond:
        return FormatPerSecond(number);
      case Unit::kFraction:
        return FormatFraction(number);
      case Unit::kRatio:
        return absl::StrCat(FormatNumber(number), " ×");
      case Unit::kNone:
        break;
    }
    return FormatNumber(number);
  }
};

bool IsNumber(const Value& value) {
  return std::holds_alternative<std::int64_t>(value.content) || std::holds_alternative<double>(value.content);
}

// Characters on the screen: continuation bytes of UTF-8 take no column, and every character used here takes one.
std::size_t DisplayWidth(absl::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

class Painter {
 public:
  explicit Painter(bool colour) : colour_(colour) {}

  std::string Paint(const char* code, absl::string_view text) const {
    return colour_ && !text.empty() ? absl::StrCat(code, text, kReset) : std::string(text);
  }
  std::string Paint(Tone tone, absl::string_view text) const {
    return tone == Tone::kPlain ? std::string(text) : Paint(tone == Tone::kGood ? kGreen : kYellow, text);
  }

 private:
  bool colour_;
};

void AppendLine(std::string& out, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  absl::StrAppend(&out, line, "\n");
}

// Empty when the section has nothing for people.
std::string SectionText(const Section& section, std::size_t label_width, const Painter& painter) {
  std::string out;
  for (const Field& field : section.fields) {
    if (field.label.empty()) continue;
    const std::string padding(label_width - DisplayWidth(field.label) + kColumnGap, ' ');
    AppendLine(out, absl::StrCat("  ", field.label, padding, painter.Paint(field.value.tone, ShownText(field.value))));
  }
  if (out.empty() || section.title.empty()) return out;
  return absl::StrCat(painter.Paint(kBold, section.title), "\n", out);
}

// One column, laid out: its cells as text, padded to one width.
struct LaidOutColumn {
  std::string header;
  std::string rule;
  std::vector<std::string> cells;
};

// Numbers are flush right, so that digits of one place stand above each other; text is flush left.
LaidOutColumn LayOut(const Rows& rows, std::size_t column_idx, const Painter& painter) {
  const Column& column = rows.columns[column_idx];
  std::vector<std::string> texts;
  bool has_numbers = false;
  std::size_t width = DisplayWidth(column.label);
  for (const std::vector<Value>& row : rows.values) {
    texts.push_back(ShownText(row[column_idx]));
    has_numbers |= IsNumber(row[column_idx]);
    width = std::max(width, DisplayWidth(texts.back()));
  }
  const auto pad = [&](absl::string_view text, const std::string& painted) {
    const std::string padding(width - DisplayWidth(text), ' ');
    return has_numbers ? padding + painted : painted + padding;
  };

  LaidOutColumn laid_out;
  laid_out.header = pad(column.label, painter.Paint(kBold, column.label));
  for (std::size_t i = 0; i < width; ++i) laid_out.rule += "─";
  laid_out.rule = painter.Paint(kDim, laid_out.rule);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const bool repeats = column.groups && i > 0 && texts[i] == texts[i - 1];
    const std::string text = repeats ? "" : texts[i];
    laid_out.cells.push_back(pad(text, painter.Paint(rows.values[i][column_idx].tone, text)));
  }
  return laid_out;
}

std::string RowsText(const Rows& rows, const Painter& painter) {
  const std::string gap(kColumnGap, ' ');
  std::string header, rule;
  std::vector<std::string> lines(rows.values.size());
  for (std::size_t c = 0; c < rows.columns.size(); ++c) {
    if (rows.columns[c].label.empty()) continue;
    const LaidOutColumn column = LayOut(rows, c, painter);
    absl::StrAppend(&header, gap, column.header);
    absl::StrAppend(&rule, gap, column.rule);
    for (std::size_t r = 0; r < lines.size(); ++r) absl::StrAppend(&lines[r], gap, column.cells[r]);
  }
  std::string out;
  AppendLine(out, header);
  AppendLine(out, rule);
  for (std::string& line : lines) AppendLine(out, std::move(line));
  return out;
}

}  // namespace

std::string ShownText(const Value& value) { return std::visit(Show{value.unit, value.shown_if_missing}, value.content); }

std::string RenderTable(const Document& document, bool colour) {
  const Painter painter(colour);
  std::vector<std::string> parts;  // with an empty line between them
  if (!document.heading.empty()) parts.push_back(absl::StrCat(painter.Paint(kBold, document.heading), "\n"));
  if (!document.picture.empty()) parts.push_back(absl::StrCat(absl::StrJoin(document.picture, "\n"), "\n"));

  std::size_t label_width = 0;
  for (const Section& section : document.sections) {
    for (const Field& field : section.fields) label_width = std::max(label_width, DisplayWidth(field.label));
  }
  for (const Section& section : document.sections) {
    std::string text = SectionText(section, label_width, painter);
    if (!text.empty()) parts.push_back(std::move(text));
  }
  if (document.rows.has_value()) parts.push_back(RowsText(*document.rows, painter));
  if (!document.notes.empty()) parts.push_back(absl::StrCat(absl::StrJoin(document.notes, "\n"), "\n"));
  return absl::StrJoin(parts, "\n");
}

}  // namespace ridgeline::cli
