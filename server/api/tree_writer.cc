#include "server/api/tree_writer.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ridgeline::api {
namespace {

// Opcodes, as Python's pickletools names them.
constexpr char kProto = '\x80';
constexpr char kStop = '.';
constexpr char kMark = '(';
constexpr char kEmptyDict = '}';
constexpr char kSetItems = 'u';
constexpr char kEmptyList = ']';
constexpr char kAppends = 'e';
constexpr char kBinInt1 = 'K';
constexpr char kBinInt2 = 'M';
constexpr char kBinInt = 'J';
constexpr char kLong1 = '\x8a';
constexpr char kBinUnicode = 'X';
constexpr char kNewTrue = '\x88';
constexpr char kNewFalse = '\x89';

// Readers put what comes between a mark and its end on a stack: no more at a time than Python itself writes.
constexpr int kMostItemsOfAppend = 1000;

constexpr int kIsDict = -1;

}  // namespace

// ---- Pickle -----------------------------------------------------------------------------------------------------------------

PickleWriter::PickleWriter() : bytes_{kProto, 2} {}

void PickleWriter::NoteItem() {
  if (open_.empty() || open_.back() == kIsDict) return;
  if (open_.back() == kMostItemsOfAppend) {
    bytes_ += {kAppends, kMark};
    open_.back() = 0;
  }
  ++open_.back();
}

void PickleWriter::BeginDict() {
  NoteItem();
  bytes_ += {kEmptyDict, kMark};
  open_.push_back(kIsDict);
}

void PickleWriter::EndDict() {
  bytes_ += kSetItems;
  open_.pop_back();
}

void PickleWriter::BeginList() {
  NoteItem();
  bytes_ += {kEmptyList, kMark};
  open_.push_back(0);
}

void PickleWriter::EndList() {
  bytes_ += kAppends;
  open_.pop_back();
}

void PickleWriter::Integer(std::int64_t value) {
  NoteItem();
  if (value >= 0 && value < 0x100) {
    bytes_ += kBinInt1;
    return AppendLittleEndian(static_cast<std::uint64_t>(value), 1);
  }
  if (value >= 0 && value < 0x10000) {
    bytes_ += kBinInt2;
    return AppendLittleEndian(static_cast<std::uint64_t>(value), 2);
  }
  if (value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max()) {
    bytes_ += kBinInt;
    return AppendLittleEndian(static_cast<std::uint64_t>(value), 4);
  }
  constexpr int kBytes = 8;
  bytes_ += {kLong1, static_cast<char>(kBytes)};
  AppendLittleEndian(static_cast<std::uint64_t>(value), kBytes);
}

void PickleWriter::Text(std::string_view text) {
  NoteItem();
  bytes_ += kBinUnicode;
  AppendLittleEndian(text.size(), 4);
  bytes_ += text;
}

void PickleWriter::Truth(bool value) {
  NoteItem();
  bytes_ += value ? kNewTrue : kNewFalse;
}

std::string PickleWriter::Finish() {
  bytes_ += kStop;
  return std::move(bytes_);
}

void PickleWriter::AppendLittleEndian(std::uint64_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i));
}

// ---- JSON -------------------------------------------------------------------------------------------------------------------

void JsonWriter::Separate() {
  if (needs_comma_) text_ += ',';
  needs_comma_ = true;
}

void JsonWriter::Open(char bracket) {
  Separate();
  text_ += bracket;
  needs_comma_ = false;
}

void JsonWriter::Close(char bracket) {
  text_ += bracket;
  needs_comma_ = true;
}

void JsonWriter::Key(std::string_view key) {
  Separate();
  Quote(key);
  text_ += ':';
  needs_comma_ = false;
}

void JsonWriter::Integer(std::int64_t value) {
  Separate();
  absl::StrAppend(&text_, value);
}

void JsonWriter::Text(std::string_view text) {
  Separate();
  Quote(text);
}

void JsonWriter::Truth(bool value) {
  Separate();
  text_ += value ? "true" : "false";
}

void JsonWriter::Quote(std::string_view text) {
  text_ += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      text_ += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&text_, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      text_ += c;
    }
  }
  text_ += '"';
}

}  // namespace ridgeline::api
