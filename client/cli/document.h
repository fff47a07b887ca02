// What a command has to say, apart from how it is printed: fields with keys for programs and labels for people, and at most
// one set of rows. Three renderers print it: a table, JSON and CSV.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ridgeline::cli {

// How people read a number. Programs get the plain number; its key names the unit.
enum class Unit {
  kNone,
  kBytes,
  kSeconds,
  kFlops,
  kFlopsPerSecond,
  kBytesPerSecond,
  kFlopsPerByte,
  kPerSecond,
  kFraction,
  kRatio
};

// A colour on terminals; never the only carrier of a fact.
enum class Tone { kPlain, kGood, kBad };

struct Value {
  Value() = default;
  Value(std::string text) : content(std::move(text)) {}  // NOLINT: converts on purpose, as do the others
  Value(const char* text) : content(std::string(text)) {}
  Value(bool truth) : content(truth) {}
  Value(std::int64_t number, Unit number_unit = Unit::kNone) : content(number), unit(number_unit) {}
  Value(double number, Unit number_unit = Unit::kNone) : content(number), unit(number_unit) {}
  Value(std::vector<std::int64_t> shape) : content(std::move(shape)) {}

  // Null for programs; people read `shown`.
  static Value Missing(std::string shown, Tone tone = Tone::kPlain);

  std::variant<std::monostate, std::string, bool, std::int64_t, double, std::vector<std::int64_t>> content;
  Unit unit = Unit::kNone;
  Tone tone = Tone::kPlain;
  std::string shown_if_missing = "—";
};

struct Field {
  std::string key;    // stable: "kernel_time_seconds"
  std::string label;  // "kernel"; empty: for programs only
  Value value;
};

struct Section {
  std::string title;
  std::vector<Field> fields;
};

struct Column {
  std::string key;
  std::string label;    // empty: for programs only
  bool groups = false;  // in tables, a cell equal to the one above it stays blank
};

struct Rows {
  std::string key;  // of the array in JSON
  std::vector<Column> columns;
  std::vector<std::vector<Value>> values;  // [row][column]
};

struct Document {
  // For tables only.
  std::string heading;
  std::vector<std::string> picture;  // lines, drawn after the heading
  std::vector<std::string> notes;    // sentences, after everything else

  std::vector<Section> sections;
  std::optional<Rows> rows;
};

// The value as people read it.
std::string ShownText(const Value& value);

// Aligned columns with units, at most one title line a section; colours if asked for.
std::string RenderTable(const Document& document, bool colour);
// One object: each field a member, the rows an array of objects. Numbers that JSON lacks are null.
std::string RenderJson(const Document& document);
// One header line, then one line a row (one in all without rows); each line repeats the fields, so that files can be
// concatenated and filtered.
std::string RenderCsv(const Document& document);

}  // namespace ridgeline::cli
