// An exported sequence of a KV cache as a file: what ExportSequence sends, one message after the other.
//
//   "RIDGELINE-KV" │ version: uint32 = 1 │ length: uint32 │ SequencePart │ length │ SequencePart │ ...   (little-endian)
//
// The first part is the header, the last the trailer. Their checksums cover every byte of keys and values; the server checks
// them on import.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ridgeline/v1/kv_cache.pb.h"

namespace ridgeline::client {

// Writes beside the path and puts the file in its place once it is whole: what bears the name can be imported.
class SequenceFileWriter {
 public:
  static absl::StatusOr<SequenceFileWriter> Create(std::string path);
  SequenceFileWriter(SequenceFileWriter&&) = default;
  // Removes what was not closed.
  ~SequenceFileWriter();

  absl::Status Write(const v1::SequencePart& part);
  // After the last part.
  absl::Status Close();

  std::int64_t size_bytes() const { return size_bytes_; }

 private:
  SequenceFileWriter(std::string path, std::ofstream file);
  void Append(const std::string& bytes);

  std::string path_;
  std::ofstream file_;
  std::int64_t size_bytes_ = 0;
};

class SequenceFileReader {
 public:
  // NOT_FOUND; INVALID_ARGUMENT for a file of another kind, or of a version that is not read.
  static absl::StatusOr<SequenceFileReader> Open(std::string path);

  // The next part; nothing after the last. DATA_LOSS for a file that is cut short, or holds something else.
  absl::StatusOr<std::optional<v1::SequencePart>> Next();

 private:
  SequenceFileReader(std::string path, std::ifstream file, std::int64_t remaining_bytes);

  std::string path_;
  std::ifstream file_;
  std::int64_t remaining_bytes_;
  bool has_trailer_ = false;
};

}  // namespace ridgeline::client
