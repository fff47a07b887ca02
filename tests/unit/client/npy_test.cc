#include "client/cpp/npy.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::client {
namespace {

using support::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::TempDir;

// A file of a name of its own, removed at the end.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content = "")
      : path_(absl::StrCat(TempDir(), "/npy_test_", ::testing::UnitTest::GetInstance()->random_seed(), "_", counter_++, "_",
                           getpid(), ".npy")) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }
  std::string Content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  static inline int counter_ = 0;
  std::string path_;
};

// A version 1.0 file with this header and so many bytes of data.
std::string FileOf(const std::string& header, std::size_t data_bytes) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  return file + header + std::string(data_bytes, 'x');
}

std::string HeaderOf(const std::string& descr, const std::string& order, const std::string& shape) {
  return absl::StrCat("{'descr': ", descr, ", 'fortran_order': ", order, ", 'shape': ", shape, ", }\n");
}

TEST(NpyTest, WhatIsWrittenReadsBack) {
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBfloat16, ElementType::kFloat32, ElementType::kFloat64}) {
    for (const std::vector<std::int64_t>& shape :
         std::vector<std::vector<std::int64_t>>{{}, {5}, {2, 3}, {1, 129, 9, 64}, {3, 0, 2}}) {
      const TemporaryFile file;
      Array array{type, shape, std::string(*ByteCount(shape, ElementBytes(type)), '\0')};
      for (std::size_t i = 0; i < array.bytes.size(); ++i) array.bytes[i] = static_cast<char>(31 * i);
      ASSERT_OK(WriteNpy(file.path(), array));
      ASSERT_OK_AND_ASSIGN(const Array read, ReadNpy(file.path()));
      EXPECT_EQ(read.type, type);
      EXPECT_EQ(read.shape, shape);
      EXPECT_EQ(read.bytes, array.bytes);
    }
  }
}

// What np.save of NumPy 2 writes for np.array([1, 2, 3.5], dtype=ml_dtypes.bfloat16), byte for byte.
TEST(NpyTest, WritesWhatNumPyWrites) {
  const TemporaryFile file;
  const std::string data("\x80\x3f\x00\x40\x60\x40", 6);
  ASSERT_OK(WriteNpy(file.path(), {ElementType::kBfloat16, {3}, data}));
  const std::string header = "{'descr': '<V2', 'fortran_order': False, 'shape': (3,), }";
  EXPECT_EQ(file.Content(), absl::StrCat(std::string("\x93NUMPY\x01\x00v\x00", 10), header, std::string(60, ' '), "\n", data));
}

TEST(NpyTest, ReadsTheModelsTensors) {
  const std::string folder = RIDGELINE_SOURCE_DIR "/tests/data/smollm2/";
  ASSERT_OK_AND_ASSIGN(const Array query, ReadNpy(folder + "layer_0_query.npy"));
  EXPECT_EQ(query.type, ElementType::kFloat32);
  EXPECT_THAT(query.shape, ElementsAre(1, 129, 9, 64));
  ASSERT_OK_AND_ASSIGN(const Array output, ReadNpy(folder + "layer_0_output.npy"));
  EXPECT_EQ(output.type, ElementType::kFloat64);
  EXPECT_THAT(output.shape, ElementsAre(1, 129, 9, 64));
}

TEST(NpyTest, ReadsEverySpellingOfBfloat16AndLaterVersions) {
  for (const std::string descr : {"'<V2'", "'|V2'", "'<u2'", "\"<u2\""}) {
    const TemporaryFile file(FileOf(HeaderOf(descr, "False", "(3,)"), 6));
    ASSERT_OK_AND_ASSIGN(const Array read, ReadNpy(file.path()));
    EXPECT_EQ(read.type, ElementType::kBfloat16);
  }
  const std::string header = HeaderOf("'<f4'", "False", "()");
  const std::string length{static_cast<char>(header.size()), 0, 0, 0};
  for (const char major : {2, 3}) {
    const TemporaryFile file(absl::StrCat("\x93NUMPY", std::string{major, 0}, length, header, "abcd"));
    ASSERT_OK_AND_ASSIGN(const Array read, ReadNpy(file.path()));
    EXPECT_THAT(read.shape, IsEmpty());
    EXPECT_EQ(read.bytes, "abcd");
  }
}

TEST(NpyTest, RefusesWhatItCannotUseAndSaysWhy) {
  const struct {
    std::string content;
    std::string reason;
  } kCases[] = {
      {"", "not a .npy file"},
      {"\x93NUMPX\x01", "not a .npy file"},
      {std::string("\x93NUMPY\x04\x00\x00\x00", 10), "format version 4"},
      {std::string("\x93NUMPY\x01\x00\x76", 9), "header is cut short"},
      {std::string("\x93NUMPY\x01\x00\x76\x00{'descr'", 18), "header is cut short"},
      {std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12), "a header of 4294967295 bytes"},
      {FileOf(HeaderOf("'<f4'", "True", "(2, 3)"), 24), "Fortran"},
      {FileOf(HeaderOf("'>f4'", "False", "(1,)"), 4), "'>f4'"},
      {FileOf(HeaderOf("'<i8'", "False", "(1,)"), 8), "'<i8'"},
      {FileOf(HeaderOf("'|O'", "False", "(1,)"), 8), "'|O'"},
      {FileOf(HeaderOf("[('a', '<f4')]", "False", "(1,)"), 4), "plain array"},
      {FileOf(HeaderOf("'<f4'", "maybe", "(1,)"), 4), "plain array"},
      {FileOf(HeaderOf("'<f4'", "False", "(1,"), 4), "plain array"},
      {FileOf(HeaderOf("'<f4'", "False", "(-1,)"), 4), "plain array"},
      {FileOf(HeaderOf("'<f4'", "False", "(99999999999999999999,)"), 4), "plain array"},
      {FileOf("{'descr': '<f4', 'shape': (1,), }", 4), "plain array"},
      {FileOf("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4), "plain array"},
      {FileOf("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}", 4), "plain array"},
      {FileOf("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} + 1", 4), "plain array"},
      {FileOf(HeaderOf("'<f4'", "False", "(2,)"), 7), "takes 8 bytes of data; the file has 7"},
      {FileOf(HeaderOf("'<f4'", "False", "(2,)"), 9), "takes 8 bytes of data; the file has 9"},
      // 2^62 bytes: refused for the size of the file, before memory is asked for.
      {FileOf(HeaderOf("'<f4'", "False", "(1152921504606846976,)"), 4), "takes 4611686018427387904 bytes"},
      {FileOf(HeaderOf("'<f4'", "False", "(4294967296, 4294967296)"), 4), "takes too many bytes"},
  };
  for (const auto& [content, reason] : kCases) {
    const TemporaryFile file(content);
    EXPECT_THAT(ReadNpy(file.path()), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(reason)));
  }
}

TEST(NpyTest, MissingFilesAndFoldersAreErrors) {
  EXPECT_THAT(ReadNpy("/nonexistent/q.npy"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("No such file")));
  EXPECT_THAT(ReadNpy(TempDir()), StatusIs(absl::StatusCode::kNotFound, HasSubstr("directory")));
  EXPECT_THAT(WriteNpy("/nonexistent/q.npy", Array{}), StatusIs(absl::StatusCode::kUnknown, HasSubstr("/nonexistent/q.npy")));
}

// Any single damaged byte gives an array of the right size or a refusal, never a crash: run under the address sanitizer.
TEST(NpyTest, DamagedFilesAreReadOrRefused) {
  const std::string whole = FileOf(HeaderOf("'<f4'", "False", "(2, 3)"), 24);
  std::minstd_rand random(1);
  int num_refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string damaged = whole;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    if (i % 3 == 0) damaged.resize(random() % damaged.size());
    const TemporaryFile file(damaged);
    const absl::StatusOr<Array> read = ReadNpy(file.path());
    if (read.ok()) {
      EXPECT_EQ(ByteCount(read->shape, ElementBytes(read->type)), static_cast<std::int64_t>(read->bytes.size()));
    } else {
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, 2500);
}

}  // namespace
}  // namespace ridgeline::client
