#include "server/api/wire_reader.h"

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "ridgeline/v1/attention.pb.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::api {
namespace {

using device::HostSlice;
using support::StatusIs;

// Bytes in pieces of the given sizes; what is left is the last piece.
std::vector<HostSlice> Cut(const std::string& bytes, const std::vector<std::size_t>& sizes) {
  std::vector<HostSlice> slices;
  std::size_t begin = 0;
  for (std::size_t size : sizes) {
    size = std::min(size, bytes.size() - begin);
    slices.push_back({bytes.data() + begin, static_cast<std::int64_t>(size)});
    begin += size;
  }
  slices.push_back({bytes.data() + begin, static_cast<std::int64_t>(bytes.size() - begin)});
  return slices;
}

absl::StatusOr<SplitMessage> SplitAttend(const std::string& bytes, const std::vector<std::size_t>& sizes = {}) {
  return Split(*v1::AttendRequest::descriptor(), Cut(bytes, sizes));
}

std::string Join(const Payload& payload) {
  std::string bytes;
  for (const HostSlice& slice : payload.slices) bytes.append(static_cast<const char*>(slice.data), slice.size_bytes);
  return bytes;
}

// Puts the payloads back where their tokens stand.
void Restore(const SplitMessage& split, google::protobuf::Message& message) {
  if (auto* tensor = dynamic_cast<v1::Tensor*>(&message); tensor != nullptr && tensor->has_inline_data()) {
    tensor->set_inline_data(Join(split.FindPayload(tensor->inline_data())));
    return;
  }
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->message_type() != nullptr && !field->is_repeated()) Restore(split, *reflection.MutableMessage(&message, field));
  }
}

// What the generated parser makes of the bytes is what the splitter makes of them.
void ExpectSameAsParser(const std::string& bytes, const std::vector<std::size_t>& sizes) {
  v1::AttendRequest expected;
  ASSERT_TRUE(expected.ParseFromString(bytes));
  ASSERT_OK_AND_ASSIGN(const SplitMessage split, SplitAttend(bytes, sizes));
  v1::AttendRequest restored;
  ASSERT_TRUE(restored.ParseFromString(split.skeleton));
  Restore(split, restored);
  EXPECT_EQ(restored.SerializeAsString(), expected.SerializeAsString());
}

v1::AttendRequest FullRequest() {
  v1::AttendRequest request;
  request.mutable_query()->set_data_type(v1::DATA_TYPE_FLOAT16);
  for (const int extent : {1, 2, 3, 400}) request.mutable_query()->add_shape(extent);
  request.mutable_query()->set_inline_data(std::string(300, 'q'));
  request.add_query_lengths(-1);
  request.mutable_dense()->mutable_key()->set_inline_data(std::string(4, '\0'));  // looks like a token
  request.mutable_dense()->mutable_value()->mutable_random()->set_seed(~0ull);
  request.mutable_dense()->add_lengths(1ll << 62);
  request.mutable_options()->set_scale(-0.5);
  request.mutable_options()->mutable_bias()->set_inline_data("");
  request.mutable_options()->mutable_sink_logits()->mutable_shared_memory()->set_region("region");
  request.mutable_output()->set_discard(true);
  return request;
}

TEST(WireReaderTest, TensorsStayWhereTheyAre) {
  const std::string bytes = FullRequest().SerializeAsString();
  ASSERT_OK_AND_ASSIGN(const SplitMessage split, SplitAttend(bytes));
  ASSERT_EQ(split.payloads.size(), 3u);
  ASSERT_EQ(split.payloads[0].slices.size(), 1u);
  const char* begin = static_cast<const char*>(split.payloads[0].slices[0].data);
  EXPECT_GE(begin, bytes.data());
  EXPECT_LE(begin + 300, bytes.data() + bytes.size());
  EXPECT_LT(split.skeleton.size(), bytes.size() - 250);
  EXPECT_EQ(split.payloads[2].size_bytes, 0);
}

TEST(WireReaderTest, AgreesWithTheParserWhereverTheBytesAreCut) {
  const std::string bytes = FullRequest().SerializeAsString();
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) ExpectSameAsParser(bytes, {cut});
  ExpectSameAsParser(bytes, std::vector<std::size_t>(bytes.size(), 1));
  ExpectSameAsParser(bytes, {0, 0, 3, 0, 100, 0});
}

TEST(WireReaderTest, RepeatedFieldsMergeAndTheLastPayloadWins) {
  v1::AttendRequest first = FullRequest();
  v1::AttendRequest second;
  second.mutable_query()->set_inline_data("other");
  second.mutable_dense()->mutable_key()->mutable_random()->set_seed(7);
  ExpectSameAsParser(first.SerializeAsString() + second.SerializeAsString(), {20});
  ExpectSameAsParser(second.SerializeAsString() + first.SerializeAsString(), {20});
}

TEST(WireReaderTest, UnknownFieldsPass) {
  // Field 1000: a varint, 8 bytes, 4 bytes, a string; the string looks like a message.
  const std::string unknown(
      "\xc0\x3e\x05\xc1\x3e"
      "12345678\xc5\x3e"
      "1234\xc2\x3e\x03\x1a\x01x",
      25);
  ExpectSameAsParser(unknown + FullRequest().SerializeAsString(), {});
}

TEST(WireReaderTest, TruncationAnywhereIsMalformedOrWhatTheParserSays) {
  const std::string bytes = FullRequest().SerializeAsString();
  int malformed = 0;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    const absl::StatusOr<SplitMessage> split = SplitAttend(cut);
    EXPECT_EQ(split.ok(), v1::AttendRequest().ParseFromString(cut)) << size;
    if (split.ok()) continue;
    ++malformed;
    EXPECT_THAT(split, StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(base::ErrorReason(split.status()), base::kReasonMalformedMessage);
  }
  EXPECT_GT(malformed, 300);
}

TEST(WireReaderTest, RefusesWhatIsNoMessage) {
  const std::vector<std::pair<const char*, std::string>> cases = {
      {"a length beyond the end", "\x0a\x7f"},
      {"a length of 2^63", std::string("\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 11)},
      {"a varint of 11 bytes", std::string("\x10") + std::string(11, '\x80')},
      {"field number 0", std::string("\x02\x00", 2)},
      {"a group", "\x0b\x0c"},
      {"wire type 7", "\x0f"},
      {"an inner length beyond the outer end", std::string("\x0a\x02\x1a\x05") + "12345"},
  };
  for (const auto& [name, bytes] : cases) {
    EXPECT_THAT(SplitAttend(bytes), StatusIs(absl::StatusCode::kInvalidArgument)) << name;
  }
}

TEST(WireReaderTest, BoundsWhatParsingCouldBlowUp) {
  std::string many;
  for (int i = 0; i <= kMaxPayloads; ++i) many += std::string("\x0a\x02\x1a\x00", 4);
  EXPECT_THAT(SplitAttend(many), StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("tensors")));

  v1::AttendRequest lengths;
  lengths.mutable_query_lengths()->Resize(static_cast<int>(kMaxSkeletonBytes) + 1, 1);
  EXPECT_THAT(SplitAttend(lengths.SerializeAsString()), StatusIs(absl::StatusCode::kInvalidArgument));
}

// Mutated messages are refused, or mean to the splitter what they mean to the parser. Groups are the one difference: the parser
// skips unknown ones.
TEST(WireReaderTest, MutationsNeverDiffer) {
  const google::protobuf::LogSilencer silencer;
  std::mt19937 generator(1);
  const std::string original = FullRequest().SerializeAsString();
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = original;
    for (unsigned flips = generator() % 4 + 1; flips > 0; --flips)
      bytes[generator() % bytes.size()] = static_cast<char>(generator());
    const absl::StatusOr<SplitMessage> split = SplitAttend(bytes, {generator() % bytes.size()});
    v1::AttendRequest expected, restored;
    const bool parses = expected.ParseFromString(bytes);
    if (!split.ok() || !restored.ParseFromString(split->skeleton)) continue;
    ASSERT_TRUE(parses) << "mutation " << i << ": " << absl::BytesToHexString(bytes);
    Restore(*split, restored);
    restored.DiscardUnknownFields();
    expected.DiscardUnknownFields();
    ASSERT_EQ(restored.SerializeAsString(), expected.SerializeAsString()) << "mutation " << i;
  }
}

}  // namespace
}  // namespace ridgeline::api
