#include "client/cpp/sequence_file.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ridgeline::client {
namespace {

constexpr absl::string_view kMagic = "RIDGELINE-KV";
constexpr std::uint32_t kVersion = 1;

std::string PartialPath(const std::string& path) { return path + ".partial"; }

std::string LittleEndian(std::uint32_t number) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(number >> shift));
  return bytes;
}

std::uint32_t FromLittleEndian(const unsigned char (&bytes)[4]) {
  return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | static_cast<std::uint32_t>(bytes[3]) << 24;
}

bool ReadNumber(std::ifstream& file, std::uint32_t& number) {
  unsigned char bytes[4];
  if (!file.read(reinterpret_cast<char*>(bytes), sizeof(bytes))) return false;
  number = FromLittleEndian(bytes);
  return true;
}

}  // namespace

absl::StatusOr<SequenceFileWriter> SequenceFileWriter::Create(std::string path) {
  std::ofstream file(PartialPath(path), std::ios::binary | std::ios::trunc);
  if (!file) return absl::UnknownError(absl::StrCat("writing ", path, ": ", std::strerror(errno)));
  SequenceFileWriter writer(std::move(path), std::move(file));
  writer.Append(absl::StrCat(kMagic, LittleEndian(kVersion)));
  return writer;
}

SequenceFileWriter::SequenceFileWriter(std::string path, std::ofstream file) : path_(std::move(path)), file_(std::move(file)) {}

SequenceFileWriter::~SequenceFileWriter() {
  if (!file_.is_open()) return;  // closed, or moved from
  file_.close();
  std::error_code ignored;
  std::filesystem::remove(PartialPath(path_), ignored);
}

void SequenceFileWriter::Append(const std::string& bytes) {
  file_ << bytes;
  size_bytes_ += static_cast<std::int64_t>(bytes.size());
}

absl::Status SequenceFileWriter::Write(const v1::SequencePart& part) {
  const std::string bytes = part.SerializeAsString();
  Append(LittleEndian(static_cast<std::uint32_t>(bytes.size())));
  Append(bytes);
  if (!file_) return absl::UnknownError(absl::StrCat("writing ", path_, ": ", std::strerror(errno)));
  return absl::OkStatus();
}

absl::Status SequenceFileWriter::Close() {
  file_.close();
  std::error_code error;
  if (!file_) {
    error = std::error_code(errno, std::generic_category());
  } else {
    std::filesystem::rename(PartialPath(path_), path_, error);
  }
  if (!error) return absl::OkStatus();
  std::error_code ignored;
  std::filesystem::remove(PartialPath(path_), ignored);
  return absl::UnknownError(absl::StrCat("writing ", path_, ": ", error.message()));
}

absl::StatusOr<SequenceFileReader> SequenceFileReader::Open(std::string path) {
  std::error_code error;
  const auto size_bytes = static_cast<std::int64_t>(std::filesystem::file_size(path, error));
  if (error) return absl::NotFoundError(absl::StrCat(path, ": ", error.message()));
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::string magic(kMagic.size(), '\0');
  std::uint32_t version = 0;
  if (!file.read(magic.data(), static_cast<std::streamsize>(magic.size())) || magic != kMagic || !ReadNumber(file, version)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not an exported sequence"));
  }
  if (version != kVersion) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": file version ", version, "; version ", kVersion, " is read"));
  }
  const std::int64_t remaining_bytes = size_bytes - static_cast<std::int64_t>(file.tellg());
  return SequenceFileReader(std::move(path), std::move(file), remaining_bytes);
}

SequenceFileReader::SequenceFileReader(std::string path, std::ifstream file, std::int64_t remaining_bytes)
    : path_(std::move(path)), file_(std::move(file)), remaining_bytes_(remaining_bytes) {}

absl::StatusOr<std::optional<v1::SequencePart>> SequenceFileReader::Next() {
  if (has_trailer_ && remaining_bytes_ == 0) return std::nullopt;
  std::uint32_t size_bytes = 0;
  // Before anything is allocated for it.
  if (!ReadNumber(file_, size_bytes) || size_bytes > remaining_bytes_ - static_cast<std::int64_t>(sizeof(size_bytes))) {
    return absl::DataLossError(absl::StrCat(path_, ": the file is cut short"));
  }
  remaining_bytes_ -= static_cast<std::int64_t>(sizeof(size_bytes) + size_bytes);
  std::string bytes(size_bytes, '\0');
  v1::SequencePart part;
  if (!file_.read(bytes.data(), size_bytes)) return absl::DataLossError(absl::StrCat(path_, ": reading the file failed"));
  if (has_trailer_ || !part.ParseFromString(bytes)) {
    return absl::DataLossError(absl::StrCat(path_, ": the file holds something that is no part of an export"));
  }
  has_trailer_ = part.has_trailer();
  return part;
}

}  // namespace ridgeline::client
