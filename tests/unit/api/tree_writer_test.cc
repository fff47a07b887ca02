#include "server/api/tree_writer.h"

#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ridgeline::api {
namespace {

constexpr std::int64_t kNumbers[] = {0,
                                     1,
                                     255,
                                     256,
                                     65535,
                                     65536,
                                     2147483647,
                                     2147483648,
                                     -1,
                                     -2147483648,
                                     -2147483649,
                                     0x7f0123456789,
                                     std::numeric_limits<std::int64_t>::max(),
                                     std::numeric_limits<std::int64_t>::min()};
constexpr char kText[] = "a \"quoted\" \\ Größe\n";

void WriteEverything(TreeWriter& writer) {
  writer.BeginDict();
  writer.Key("numbers");
  writer.BeginList();
  for (const std::int64_t number : kNumbers) writer.Integer(number);
  writer.EndList();
  writer.Key("text");
  writer.Text(kText);
  writer.Key("truths");
  writer.BeginList();
  writer.Truth(true);
  writer.Truth(false);
  writer.EndList();
  writer.Key("nothing");
  writer.BeginList();
  writer.BeginDict();
  writer.EndDict();
  writer.BeginList();
  writer.EndList();
  writer.EndList();
  writer.Key("many");
  writer.BeginList();
  for (int i = 0; i < 2500; ++i) writer.Integer(i);
  writer.EndList();
  writer.EndDict();
}

constexpr char kExpected[] =
    "{'numbers': [0, 1, 255, 256, 65535, 65536, 2147483647, 2147483648, -1, -2147483648, -2147483649, 0x7f0123456789, "
    "2**63 - 1, -2**63], 'text': 'a \"quoted\" \\\\ Größe\\n', 'truths': [True, False], 'nothing': [{}, []], "
    "'many': list(range(2500))}";

// Python reads it as what was meant.
void ExpectPythonReads(const std::string& bytes, const std::string& reader) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/tree_writer_test_", reader);
  std::ofstream(path, std::ios::binary) << bytes;
  const std::string program =
      absl::StrCat("import ", reader, "\nassert ", reader, ".load(open('", path, "', 'rb')) == ", kExpected, "\n");
  const std::string script = absl::StrCat(path, ".py");
  std::ofstream(script) << program;
  EXPECT_EQ(std::system(absl::StrCat("python3 ", script).c_str()), 0);
}

TEST(TreeWriterTest, PythonUnpicklesWhatWasWritten) {
  PickleWriter writer;
  WriteEverything(writer);
  const std::string bytes = writer.Finish();
  EXPECT_EQ(bytes.substr(0, 2), "\x80\x02") << "protocol 2";
  ExpectPythonReads(bytes, "pickle");
}

TEST(TreeWriterTest, PythonReadsTheJson) {
  JsonWriter writer;
  WriteEverything(writer);
  ExpectPythonReads(writer.Finish(), "json");
}

TEST(TreeWriterTest, JsonIsCompact) {
  JsonWriter writer;
  writer.BeginDict();
  writer.Key("a");
  writer.BeginList();
  writer.Integer(1);
  writer.Truth(true);
  writer.BeginDict();
  writer.EndDict();
  writer.EndList();
  writer.Key("b");
  writer.Text("\x01");
  writer.EndDict();
  EXPECT_EQ(writer.Finish(), R"({"a":[1,true,{}],"b":"\u0001"})");
}

}  // namespace
}  // namespace ridgeline::api
