#include "client/cpp/sequence_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::client {
namespace {

using support::IsOk;
using support::StatusIs;
using ::testing::HasSubstr;

std::vector<v1::SequencePart> SomeParts() {
  std::vector<v1::SequencePart> parts(3);
  parts[0].mutable_header()->set_format_version(1);
  parts[1].mutable_chunk()->mutable_key()->set_inline_data(std::string(1000, 'k'));
  parts[2].mutable_trailer()->set_chunk_count(1);
  return parts;
}

class SequenceFileTest : public ::testing::Test {
 protected:
  ~SequenceFileTest() override { std::filesystem::remove(path_); }

  void WriteAll() const {
    ASSERT_OK_AND_ASSIGN(SequenceFileWriter writer, SequenceFileWriter::Create(path_));
    for (const v1::SequencePart& part : SomeParts()) ASSERT_OK(writer.Write(part));
    ASSERT_OK(writer.Close());
    EXPECT_EQ(writer.size_bytes(), static_cast<std::int64_t>(std::filesystem::file_size(path_)));
  }

  std::string Content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  void SetContent(const std::string& content) const { std::ofstream(path_, std::ios::binary) << content; }

  // The status after all parts that can be read.
  absl::Status ReadAll() const {
    absl::StatusOr<SequenceFileReader> reader = SequenceFileReader::Open(path_);
    if (!reader.ok()) return reader.status();
    while (true) {
      const auto part = reader->Next();
      if (!part.ok()) return part.status();
      if (!part->has_value()) return absl::OkStatus();
    }
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "/sequence_file_test_", getpid());
};

TEST_F(SequenceFileTest, GivesBackWhatWasWritten) {
  WriteAll();
  ASSERT_OK_AND_ASSIGN(SequenceFileReader reader, SequenceFileReader::Open(path_));
  for (const v1::SequencePart& part : SomeParts()) {
    ASSERT_OK_AND_ASSIGN(const auto read, reader.Next());
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->SerializeAsString(), part.SerializeAsString());
  }
  ASSERT_OK_AND_ASSIGN(const auto end, reader.Next());
  EXPECT_FALSE(end.has_value());
}

TEST_F(SequenceFileTest, AFileThatIsNotClosedIsNotThere) {
  SetContent("what was there before");
  {
    ASSERT_OK_AND_ASSIGN(SequenceFileWriter writer, SequenceFileWriter::Create(path_));
    ASSERT_OK(writer.Write(SomeParts()[0]));
  }
  EXPECT_EQ(Content(), "what was there before");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".partial"));
}

TEST_F(SequenceFileTest, AFileCutAnywhereIsRefused) {
  WriteAll();
  const std::string whole = Content();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    SetContent(whole.substr(0, size));
    EXPECT_FALSE(ReadAll().ok()) << size;
  }
  SetContent(whole + '\0');
  EXPECT_FALSE(ReadAll().ok());
  SetContent(whole);
  EXPECT_THAT(ReadAll(), IsOk());
}

TEST_F(SequenceFileTest, OtherFilesAndVersionsAreRefused) {
  EXPECT_THAT(ReadAll(), StatusIs(absl::StatusCode::kNotFound, HasSubstr(path_)));
  SetContent("not what it seems to be");
  EXPECT_THAT(ReadAll(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not an exported sequence")));
  SetContent(std::string("RIDGELINE-KV\2\0\0\0", 16));
  EXPECT_THAT(ReadAll(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("file version 2; version 1 is read")));
  // A length that nobody could allocate.
  SetContent(std::string("RIDGELINE-KV\1\0\0\0\xff\xff\xff\xff", 20));
  EXPECT_THAT(ReadAll(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("cut short")));
}

TEST_F(SequenceFileTest, APathThatCannotBeWrittenIsNamed) {
  EXPECT_THAT(SequenceFileWriter::Create("/no/such/folder/a.kv").status(),
              StatusIs(absl::StatusCode::kUnknown, HasSubstr("/no/such/folder/a.kv")));
}

}  // namespace
}  // namespace ridgeline::client
