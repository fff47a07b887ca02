#include "client/cpp/npy.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace ridgeline::client {
namespace {

constexpr absl::string_view kMagic = "\x93NUMPY";
constexpr std::int64_t kDataAlignmentBytes = 64;
// NumPy itself refuses longer ones unless told otherwise; a real header is about 100 bytes.
constexpr std::int64_t kMaxHeaderBytes = 10'000;
constexpr std::size_t kMaxRank = 64;

// What the header says.
struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

// Reads the header: a Python dictionary of one string, one boolean and one tuple of integers. Each step returns false or
// nothing at the first thing that it does not understand.
class HeaderParser {
 public:
  explicit HeaderParser(absl::string_view text) : text_(text) {}

  std::optional<Header> Parse() {
    Header header;
    bool has_descr = false, has_order = false, has_shape = false;
    if (!Take("{")) return std::nullopt;
    while (!Take("}")) {
      const std::optional<std::string> key = TakeString();
      if (!key.has_value() || !Take(":")) return std::nullopt;
      bool* seen = *key == "descr" ? &has_descr : *key == "fortran_order" ? &has_order : *key == "shape" ? &has_shape : nullptr;
      if (seen == nullptr || *seen) return std::nullopt;
      *seen = true;
      const bool understood = seen == &has_descr   ? TakeDescr(header.descr)
                              : seen == &has_order ? TakeBool(header.fortran_order)
                                                   : TakeShape(header.shape);
      if (!understood) return std::nullopt;
      if (!Take(",") && !Peek("}")) return std::nullopt;
    }
    SkipSpace();
    if (!text_.empty() || !has_descr || !has_order || !has_shape) return std::nullopt;
    return header;
  }

 private:
  void SkipSpace() { text_ = absl::StripLeadingAsciiWhitespace(text_); }
  bool Peek(absl::string_view token) {
    SkipSpace();
    return absl::StartsWith(text_, token);
  }
  bool Take(absl::string_view token) {
    SkipSpace();
    return absl::ConsumePrefix(&text_, token);
  }

  std::optional<std::string> TakeString() {
    const bool single_quoted = Take("'");
    if (!single_quoted && !Take("\"")) return std::nullopt;
    const std::size_t end = text_.find(single_quoted ? '\'' : '"');
    if (end == absl::string_view::npos) return std::nullopt;
    std::string taken(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return taken;
  }

  bool TakeDescr(std::string& descr) {
    std::optional<std::string> taken = TakeString();
    if (taken.has_value()) descr = *std::move(taken);
    return taken.has_value();
  }

  bool TakeBool(bool& value) {
    value = Take("True");
    return value || Take("False");
  }

  bool TakeShape(std::vector<std::int64_t>& shape) {
    if (!Take("(")) return false;
    while (!Take(")")) {
      SkipSpace();
      const std::size_t num_digits = std::min(text_.find_first_not_of("0123456789"), text_.size());
      std::int64_t extent;
      if (shape.size() == kMaxRank || !absl::SimpleAtoi(text_.substr(0, num_digits), &extent)) return false;
      text_.remove_prefix(num_digits);
      shape.push_back(extent);
      if (!Take(",") && !Peek(")")) return false;
    }
    return true;
  }

  absl::string_view text_;
};

std::optional<ElementType> ElementTypeOf(absl::string_view descr) {
  if (descr == "<f2") return ElementType::kFloat16;
  if (descr == "<f4") return ElementType::kFloat32;
  if (descr == "<f8") return ElementType::kFloat64;
  if (descr == "<V2" || descr == "|V2" || descr == "<u2") return ElementType::kBfloat16;
  return std::nullopt;
}

absl::string_view DescrOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat16:
      return "<f2";
    case ElementType::kBfloat16:
      return "<V2";
    case ElementType::kFloat32:
      return "<f4";
    case ElementType::kFloat64:
      break;
  }
  return "<f8";
}

absl::Status Malformed(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

// An open file whose size is known.
struct Input {
  std::ifstream stream;
  std::int64_t remaining_bytes;

  // Fills `to`, or says that there is not that much left.
  bool Read(char* to, std::int64_t bytes) {
    if (bytes > remaining_bytes || !stream.read(to, bytes)) return false;
    remaining_bytes -= bytes;
    return true;
  }
};

absl::StatusOr<Input> Open(const std::string& path) {
  std::error_code error;
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(path, error));
  if (error) return absl::NotFoundError(absl::StrCat(path, ": ", error.message()));
  Input input{std::ifstream(path, std::ios::binary), bytes};
  if (!input.stream) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  return input;
}

absl::StatusOr<Header> ReadHeader(Input& input, const std::string& path) {
  unsigned char preamble[8];  // magic, major, minor
  static_assert(sizeof(preamble) == kMagic.size() + 2);
  if (!input.Read(reinterpret_cast<char*>(preamble), sizeof(preamble)) ||
      std::memcmp(preamble, kMagic.data(), kMagic.size()) != 0) {
    return Malformed(path, "not a .npy file");
  }
  const int major = preamble[kMagic.size()];
  if (major < 1 || major > 3) return Malformed(path, absl::StrCat("format version ", major, "; 1 to 3 are read"));

  std::uint32_t header_bytes = 0;
  if (!input.Read(reinterpret_cast<char*>(&header_bytes), major == 1 ? 2 : 4))
    return Malformed(path, "the header is cut short");
  if (header_bytes > kMaxHeaderBytes) {
    return Malformed(path, absl::StrCat("a header of ", header_bytes, " bytes; at most ", kMaxHeaderBytes, " are read"));
  }
  std::string text(header_bytes, '\0');
  if (!input.Read(text.data(), header_bytes)) return Malformed(path, "the header is cut short");
  std::optional<Header> header = HeaderParser(text).Parse();
  if (!header.has_value()) return Malformed(path, "the header does not describe a plain array");
  return *std::move(header);
}

}  // namespace

absl::StatusOr<Array> ReadNpy(const std::string& path) {
  absl::StatusOr<Input> input = Open(path);
  if (!input.ok()) return input.status();
  absl::StatusOr<Header> header = ReadHeader(*input, path);
  if (!header.ok()) return header.status();

  const std::optional<ElementType> type = ElementTypeOf(header->descr);
  if (!type.has_value()) {
    return Malformed(path, absl::StrCat("element type '", header->descr,
                                        "'; little-endian '<f2', '<f4', '<f8', and '<V2' or '<u2' for bfloat16, are read"));
  }
  if (header->fortran_order) {
    return Malformed(path, "the array is in Fortran (column-major) order; save np.ascontiguousarray(array) instead");
  }
  const std::optional<std::int64_t> bytes = ByteCount(header->shape, ElementBytes(*type));
  if (!bytes.has_value() || *bytes != input->remaining_bytes) {
    return Malformed(path, absl::StrCat("shape ", ShapeString(header->shape), " of ", ElementTypeName(*type), " takes ",
                                        bytes.has_value() ? absl::StrCat(*bytes) : "too many", " bytes of data; the file has ",
                                        input->remaining_bytes));
  }
  Array array{*type, std::move(header->shape), std::string(*bytes, '\0')};
  if (!input->Read(array.bytes.data(), *bytes)) return Malformed(path, "reading the data failed");
  return array;
}

absl::Status WriteNpy(const std::string& path, const Array& array) {
  const absl::string_view trailing_comma = array.shape.size() == 1 ? "," : "";  // (3,) is a tuple, (3) is not
  std::string header = absl::StrCat("{'descr': '", DescrOf(array.type), "', 'fortran_order': False, 'shape': (",
                                    absl::StrJoin(array.shape, ", "), trailing_comma, "), }");
  const auto preamble_bytes = static_cast<std::int64_t>(kMagic.size() + 2 + sizeof(std::uint16_t));
  const auto unpadded_bytes = preamble_bytes + static_cast<std::int64_t>(header.size()) + 1;  // 1: the closing newline
  header.append((kDataAlignmentBytes - unpadded_bytes % kDataAlignmentBytes) % kDataAlignmentBytes, ' ');
  header.push_back('\n');
  const auto header_bytes = static_cast<std::uint16_t>(header.size());

  std::ofstream file(path, std::ios::binary);
  file << kMagic << '\1' << '\0';
  file.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  file << header << array.bytes;
  file.close();
  if (!file) return absl::UnknownError(absl::StrCat("writing ", path, ": ", std::strerror(errno)));
  return absl::OkStatus();
}

}  // namespace ridgeline::client
