#include "server/api/sequence_format.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/support/byte_buffer.h"
#include "gtest/gtest.h"
#include "server/api/byte_buffer.h"
#include "server/api/crc32c.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::api {
namespace {

using support::IsOk;
using support::StatusIs;
using ::testing::ElementsAre;

class StringBuffer : public device::HostBuffer {
 public:
  explicit StringBuffer(std::string bytes) : bytes_(std::move(bytes)) {}
  const void* data() const override { return bytes_.data(); }
  std::int64_t size_bytes() const override { return static_cast<std::int64_t>(bytes_.size()); }

 private:
  const std::string bytes_;
};

constexpr char kKeys[] = "keys of two tokens";
constexpr char kValues[] = "values";

engine::SequenceHeader SomeHeader() {
  return {.layers = 2,
          .kv_heads = 1,
          .head_dim = 16,
          .value_head_dim = 8,
          .data_type = kernels::DataType::kFloat16,
          .lengths = {2, 0}};
}

engine::OutgoingChunk SomeChunk() {
  return {.layer = 0,
          .token_begin = 0,
          .key = {kernels::DataType::kFloat16, {2, 1, 16}, std::make_shared<StringBuffer>(kKeys)},
          .value = {kernels::DataType::kFloat16, {2, 1, 8}, std::make_shared<StringBuffer>(kValues)}};
}

// Of bytes that gRPC would send, as gRPC would receive them.
v1::SequencePart ReadBack(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  v1::SequencePart part;
  EXPECT_TRUE(part.ParseFromString(bytes));
  return part;
}

// The export of a sequence with one chunk.
struct Export {
  Export() : summary(SomeHeader()) {
    header = ToMessage(SomeHeader());
    const engine::OutgoingChunk outgoing = SomeChunk();
    chunk = ReadBack(Serialize(ToMessage(outgoing, summary), outgoing));
    *trailer.mutable_trailer() = summary.trailer();
  }

  SequenceSummary summary;
  v1::SequencePart header, chunk, trailer;
};

absl::StatusOr<ImportMessage> Parse(const v1::ImportSequenceRequest& message) {
  auto bytes = std::make_shared<std::string>(message.SerializeAsString());
  const device::HostSlice slice{bytes->data(), static_cast<std::int64_t>(bytes->size())};
  return ParseImportSequenceRequest({&slice, 1}, bytes);
}

absl::StatusOr<ImportMessage> Parse(const v1::SequencePart& part) {
  v1::ImportSequenceRequest message;
  *message.mutable_part() = part;
  return Parse(message);
}

// What the parts come to, as an import sees it.
absl::Status Import(const v1::SequencePart& header, const v1::SequencePart& chunk, const v1::SequencePart& trailer) {
  const absl::StatusOr<ImportMessage> parsed_header = Parse(header);
  if (!parsed_header.ok()) return parsed_header.status();
  SequenceSummary summary(std::get<engine::SequenceHeader>(parsed_header->part));
  const absl::StatusOr<ImportMessage> parsed_chunk = Parse(chunk);
  if (!parsed_chunk.ok()) return parsed_chunk.status();
  const auto& incoming = std::get<engine::IncomingChunk>(parsed_chunk->part);
  const absl::Status checked = CheckChunk(incoming, parsed_chunk->chunk_crc32c, summary);
  if (!checked.ok()) return checked;
  return CheckTrailer(trailer.trailer(), summary);
}

TEST(SequenceFormatTest, WhatIsExportedCanBeImported) {
  const Export parts;
  EXPECT_EQ(parts.chunk.chunk().key().inline_data(), kKeys);
  EXPECT_EQ(parts.chunk.chunk().value().inline_data(), kValues);
  EXPECT_THAT(parts.chunk.chunk().value().shape(), ElementsAre(2, 1, 8));
  EXPECT_EQ(parts.trailer.trailer().chunk_count(), 1);
  EXPECT_THAT(Import(parts.header, parts.chunk, parts.trailer), IsOk());
}

// As the proto describes it: other implementations rely on it.
TEST(SequenceFormatTest, ChecksumsAreThoseOfTheContract) {
  const Export parts;
  const std::string elements = std::string(kKeys) + kValues;
  const std::uint32_t chunk_crc32c = ExtendCrc32c(0, elements.data(), elements.size());
  EXPECT_EQ(parts.chunk.chunk().crc32c(), chunk_crc32c);
  std::vector<std::int64_t> numbers = {1, 2, 1, 16, 8, v1::DATA_TYPE_FLOAT16, 2, 0};  // the header
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{0}, std::int64_t{2}, std::int64_t{chunk_crc32c}}) {
    numbers.push_back(number);
  }
  EXPECT_EQ(parts.trailer.trailer().crc32c(), ExtendCrc32c(0, numbers.data(), numbers.size() * sizeof(std::int64_t)));
}

TEST(SequenceFormatTest, HeadersArriveWithParentAndId) {
  v1::ImportSequenceRequest message;
  message.set_parent("kvCaches/chat");
  message.set_sequence_id("a");
  *message.mutable_part() = Export().header;
  ASSERT_OK_AND_ASSIGN(const ImportMessage parsed, Parse(message));
  EXPECT_EQ(parsed.parent, "kvCaches/chat");
  EXPECT_EQ(parsed.sequence_id, "a");
  const auto& header = std::get<engine::SequenceHeader>(parsed.part);
  EXPECT_EQ(header.layers, 2);
  EXPECT_EQ(header.kv_heads, 1);
  EXPECT_EQ(header.head_dim, 16);
  EXPECT_EQ(header.value_head_dim, 8);
  EXPECT_EQ(header.data_type, kernels::DataType::kFloat16);
  EXPECT_THAT(header.lengths, ElementsAre(2, 0));
}

TEST(SequenceFormatTest, AnyChangeIsSeen) {
  const Export right;
  const auto expect_refused = [&](auto change, const char* field, std::string_view reason) {
    Export wrong;
    change(wrong);
    const absl::Status status = Import(wrong.header, wrong.chunk, wrong.trailer);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument)) << field;
    EXPECT_EQ(base::ErrorField(status), field);
    EXPECT_EQ(base::ErrorReason(status), reason) << field;
  };
  const auto chunk = [](Export& wrong) -> v1::SequenceChunk& { return *wrong.chunk.mutable_chunk(); };
  const auto header = [](Export& wrong) -> v1::SequenceHeader& { return *wrong.header.mutable_header(); };
  const std::string_view kMismatch = base::kReasonChecksumMismatch;
  expect_refused([&](Export& e) { chunk(e).mutable_key()->mutable_inline_data()->front() ^= 1; }, "part.chunk.crc32c",
                 kMismatch);
  expect_refused([&](Export& e) { chunk(e).mutable_value()->mutable_inline_data()->back() ^= 1; }, "part.chunk.crc32c",
                 kMismatch);
  expect_refused([&](Export& e) { chunk(e).set_crc32c(0); }, "part.chunk.crc32c", kMismatch);
  expect_refused([&](Export& e) { chunk(e).set_layer(1); }, "part.trailer.crc32c", kMismatch);
  expect_refused([&](Export& e) { chunk(e).set_token_begin(1); }, "part.trailer.crc32c", kMismatch);
  expect_refused([&](Export& e) { chunk(e).mutable_key()->set_shape(0, 1); }, "part.trailer.crc32c", kMismatch);
  expect_refused([&](Export& e) { header(e).set_lengths(1, 2); }, "part.trailer.crc32c", kMismatch);
  expect_refused([&](Export& e) { header(e).set_data_type(v1::DATA_TYPE_BFLOAT16); }, "part.trailer.crc32c", kMismatch);
  expect_refused([&](Export& e) { e.trailer.mutable_trailer()->set_crc32c(1); }, "part.trailer.crc32c", kMismatch);
  expect_refused([&](Export& e) { e.trailer.mutable_trailer()->set_chunk_count(2); }, "part.trailer.chunk_count",
                 base::kReasonTruncatedExport);
}

TEST(SequenceFormatTest, RefusesWhatItCannotRead) {
  const auto field_of = [](const v1::SequencePart& part) { return base::ErrorField(Parse(part).status()).value_or(""); };
  v1::SequencePart header = Export().header;
  header.mutable_header()->set_format_version(2);
  EXPECT_EQ(field_of(header), "part.header.format_version");
  header = Export().header;
  header.mutable_header()->clear_data_type();
  EXPECT_EQ(field_of(header), "part.header.data_type");
  EXPECT_EQ(field_of({}), "part");
  v1::SequencePart chunk = Export().chunk;
  chunk.mutable_chunk()->mutable_key()->set_data_type(static_cast<v1::DataType>(99));
  EXPECT_EQ(field_of(chunk), "part.chunk.key.data_type");
}

TEST(SequenceFormatTest, ElementsThatAreNotInlineAreRefused) {
  for (const bool random : {false, true}) {
    Export wrong;
    v1::Tensor& value = *wrong.chunk.mutable_chunk()->mutable_value();
    value.clear_inline_data();
    if (random) value.mutable_random();
    EXPECT_EQ(base::ErrorField(Import(wrong.header, wrong.chunk, wrong.trailer)), "part.chunk.value.inline_data");
  }
}

}  // namespace
}  // namespace ridgeline::api
