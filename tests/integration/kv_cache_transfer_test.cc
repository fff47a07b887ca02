// Sequences that move: from one daemon to another, over a restart, and what is refused on the way.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "client/cpp/error.h"
#include "client/cpp/sequence_file.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "ridgeline/v1/kv_cache.grpc.pb.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/integration/vanishing_peer.h"
#include "tests/support/daemon.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::integration {
namespace {

using client::Client;
using client::ErrorReason;
using support::Daemon;
using support::IsOk;
using support::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kCache[] = "kvCaches/chat";
constexpr char kA[] = "kvCaches/chat/sequences/a";
constexpr char kLargeCache[] = "kvCaches/large";
constexpr char kLarge[] = "kvCaches/large/sequences/a";

using Parts = std::vector<v1::SequencePart>;

absl::StatusOr<Parts> Export(const Client& client, const std::string& name) {
  Parts parts;
  absl::Status status = client.ExportSequence(name, [&](v1::SequencePart part) {
    parts.push_back(std::move(part));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return parts;
}

absl::StatusOr<v1::Sequence> Import(const Client& client, const std::string& id, const Parts& parts) {
  std::size_t next = 0;
  return client.ImportSequence(kCache, id, [&]() -> absl::StatusOr<std::optional<v1::SequencePart>> {
    if (next == parts.size()) return std::nullopt;
    return parts[next++];
  });
}

std::unique_ptr<v1::KvCacheService::Stub> Stub(const std::string& address) {
  return v1::KvCacheService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
}

// A daemon with a cache and a sequence "a" whose layers have different lengths.
class TransferTest : public ::testing::Test {
 protected:
  TransferTest() {
    EXPECT_THAT(client_.CreateKvCache(CacheRequest("chat", 64)), IsOk());
    EXPECT_THAT(client_.CreateSequence(kCache, "a"), IsOk());
    EXPECT_THAT(client_.AppendKeyValue(AppendRequest(kA, 0, first_)), IsOk());
    EXPECT_THAT(client_.AppendKeyValue(AppendRequest(kA, 1, second_)), IsOk());
  }

  // One sequence, its pages and nothing else.
  void ExpectUnchanged() const {
    const auto cache = client_.GetKvCache(kCache);
    ASSERT_THAT(cache, IsOk());
    EXPECT_EQ(cache->sequence_count(), 1);
    EXPECT_EQ(cache->used_pages(), 5);
  }

  Daemon daemon_;
  const Client client_ = Connect(daemon_.unix_address());
  const Tokens first_ = RandomTokens(11, 1);
  const Tokens second_ = RandomTokens(17, 2);
};

TEST_F(TransferTest, ASequenceMovesToAnotherDaemonWithOtherPages) {
  const auto parts = Export(client_, kA);
  ASSERT_THAT(parts, IsOk());
  EXPECT_EQ(parts->front().header().format_version(), 1);
  EXPECT_THAT(parts->front().header().lengths(), ElementsAre(11, 17));
  EXPECT_TRUE(parts->back().has_trailer());

  Daemon other;
  const Client client = Connect(other.tcp_address());
  v1::CreateKvCacheRequest request = CacheRequest("chat", 64);
  request.mutable_kv_cache()->set_page_tokens(7);
  ASSERT_THAT(client.CreateKvCache(request), IsOk());
  const auto sequence = Import(client, "moved", *parts);
  ASSERT_THAT(sequence, IsOk());
  EXPECT_EQ(sequence->name(), "kvCaches/chat/sequences/moved");
  EXPECT_THAT(sequence->lengths(), ElementsAre(11, 17));
  EXPECT_EQ(sequence->page_count(), 3);
  ExpectHolds(client, sequence->name(), 0, first_);
  ExpectHolds(client, sequence->name(), 1, second_);

  // Bit for bit: exported again, its chunks are the same bytes.
  const auto again = Export(client, sequence->name());
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->back().trailer().crc32c(), parts->back().trailer().crc32c());
  // It is a sequence like any other.
  Tokens longer = first_;
  longer.Append(RandomTokens(5, 3));
  ASSERT_THAT(client.AppendKeyValue(AppendRequest(sequence->name(), 0, RandomTokens(5, 3))), IsOk());
  ExpectHolds(client, sequence->name(), 0, longer);
}

TEST_F(TransferTest, ASequenceSurvivesARestartInAFile) {
  const std::string path = daemon_.folder() + "/a.kv";
  auto writer = client::SequenceFileWriter::Create(path);
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT(client_.ExportSequence(kA, [&](const v1::SequencePart& part) { return writer->Write(part); }), IsOk());
  ASSERT_THAT(writer->Close(), IsOk());
  daemon_.process().Signal(SIGTERM);
  ASSERT_EQ(daemon_.process().Wait(absl::Seconds(40)), 0);

  Daemon restarted;
  const Client client = Connect(restarted.unix_address());
  ASSERT_THAT(client.CreateKvCache(CacheRequest("chat", 64)), IsOk());
  auto reader = client::SequenceFileReader::Open(path);
  ASSERT_THAT(reader, IsOk());
  const auto sequence = client.ImportSequence(kCache, "", [&] { return reader->Next(); });
  ASSERT_THAT(sequence, IsOk());
  ExpectHolds(client, sequence->name(), 0, first_);
  ExpectHolds(client, sequence->name(), 1, second_);
}

TEST_F(TransferTest, AnEmptySequenceMovesToo) {
  ASSERT_THAT(client_.TruncateSequence(kA, 0), IsOk());
  const auto parts = Export(client_, kA);
  ASSERT_THAT(parts, IsOk());
  EXPECT_EQ(parts->size(), 2u) << "a header and a trailer";
  const auto sequence = Import(client_, "b", *parts);
  ASSERT_THAT(sequence, IsOk());
  EXPECT_THAT(sequence->lengths(), ElementsAre(0, 0));
}

TEST_F(TransferTest, WhatIsWrongIsRefusedAndLeavesNothing) {
  const auto right = Export(client_, kA);
  ASSERT_THAT(right, IsOk());
  ASSERT_GE(right->size(), 4u);  // a chunk a layer at least
  const auto expect_refused = [&](auto change, const char* field, const char* reason) {
    Parts parts = *right;
    change(parts);
    const absl::Status status = Import(client_, "b", parts).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument)) << field;
    EXPECT_EQ(ErrorReason(status), reason) << field << ": " << status.message();
    if (*field != '\0') {
      EXPECT_THAT(client::ViolatedFields(status), ElementsAre(HasSubstr(field)));
    }
    ExpectUnchanged();
  };
  expect_refused([](Parts& p) { p[2].mutable_chunk()->mutable_key()->mutable_inline_data()->back() ^= 1; }, "part.chunk.crc32c",
                 "CHECKSUM_MISMATCH");
  expect_refused([](Parts& p) { p.back().mutable_trailer()->set_crc32c(7); }, "part.trailer.crc32c", "CHECKSUM_MISMATCH");
  expect_refused([](Parts& p) { p[0].mutable_header()->set_format_version(2); }, "part.header.format_version", "INVALID_FIELD");
  expect_refused([](Parts& p) { p[0].mutable_header()->set_kv_heads(3); }, "part.header.kv_heads", "INVALID_FIELD");
  expect_refused([](Parts& p) { p[0].mutable_header()->set_data_type(v1::DATA_TYPE_FLOAT16); }, "part.header.data_type",
                 "INVALID_FIELD");
  expect_refused([](Parts& p) { p[0].mutable_header()->add_lengths(1); }, "part.header.lengths", "INVALID_FIELD");
  expect_refused([](Parts& p) { p[0].mutable_header()->set_lengths(0, -1); }, "part.header.lengths", "INVALID_FIELD");
  expect_refused([](Parts& p) { p.pop_back(); }, "", "TRUNCATED_EXPORT");
  expect_refused([](Parts& p) { p.erase(p.begin() + 1); }, "part.chunk", "INVALID_FIELD");
  expect_refused([](Parts& p) { p.erase(p.end() - 2); }, "part.trailer.chunk_count", "TRUNCATED_EXPORT");
  expect_refused([](Parts& p) { std::swap(p[1], p[2]); }, "part.chunk", "INVALID_FIELD");
  expect_refused([](Parts& p) { p.insert(p.begin() + 1, p[1]); }, "part.chunk", "INVALID_FIELD");
  expect_refused([](Parts& p) { p.erase(p.begin()); }, "part", "INVALID_FIELD");
  expect_refused([](Parts& p) { p.insert(p.begin(), p[0]); }, "part.header", "INVALID_FIELD");
  expect_refused([](Parts& p) { p[1].Clear(); }, "part", "INVALID_FIELD");
  expect_refused([](Parts& p) { p.clear(); }, "", "TRUNCATED_EXPORT");

  EXPECT_EQ(ErrorReason(Import(client_, "a", *right).status()), "SEQUENCE_EXISTS");
  ExpectUnchanged();
  EXPECT_THAT(Import(client_, "b", *right), IsOk());
}

TEST_F(TransferTest, WhatDoesNotFitIsRefusedAndLeavesNothing) {
  const auto parts = Export(client_, kA);
  ASSERT_THAT(parts, IsOk());
  ASSERT_THAT(client_.DeleteKvCache(kCache), IsOk());
  ASSERT_THAT(client_.CreateKvCache(CacheRequest("chat", 4)), IsOk());
  EXPECT_EQ(ErrorReason(Import(client_, "b", *parts).status()), "KV_CACHE_FULL");
  const auto cache = client_.GetKvCache(kCache);
  EXPECT_EQ(cache->sequence_count(), 0);
  EXPECT_EQ(cache->used_pages(), 0);
}

TEST_F(TransferTest, AnImportThatBreaksOffLeavesNothing) {
  const auto parts = Export(client_, kA);
  ASSERT_THAT(parts, IsOk());
  const auto stub = Stub(daemon_.unix_address());
  {
    grpc::ClientContext context;
    v1::Sequence sequence;
    const auto call = stub->ImportSequence(&context, &sequence);
    v1::ImportSequenceRequest request;
    request.set_parent(kCache);
    request.set_sequence_id("b");
    for (std::size_t i = 0; i < 2; ++i) {
      *request.mutable_part() = (*parts)[i];
      ASSERT_TRUE(call->Write(request));
      request.Clear();
    }
    // Until the chunk has its pages.
    while (client_.GetKvCache(kCache)->used_pages() == 5) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_EQ(client_.GetKvCache(kCache)->sequence_count(), 1) << "nobody sees it yet";
    context.TryCancel();
    EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  for (int i = 0; i < 2000 && client_.GetKvCache(kCache)->used_pages() != 5; ++i) absl::SleepFor(absl::Milliseconds(10));
  ExpectUnchanged();
  EXPECT_THAT(Import(client_, "b", *parts), IsOk()) << "the name is free again";
}

TEST_F(TransferTest, AnExportIsASnapshot) {
  const auto stub = Stub(daemon_.unix_address());
  grpc::ClientContext context;
  v1::ExportSequenceRequest request;
  request.set_name(kA);
  const auto call = stub->ExportSequence(&context, request);
  Parts parts(1);
  ASSERT_TRUE(call->Read(&parts[0]));
  ASSERT_THAT(client_.AppendKeyValue(AppendRequest(kA, 0, RandomTokens(3, 9))), IsOk());
  ASSERT_THAT(client_.TruncateSequence(kA, 2), IsOk());
  ASSERT_THAT(client_.DeleteSequence(kA), IsOk());
  for (v1::SequencePart part; call->Read(&part);) parts.push_back(part);
  ASSERT_TRUE(call->Finish().ok());
  const auto sequence = Import(client_, "b", parts);
  ASSERT_THAT(sequence, IsOk());
  ExpectHolds(client_, sequence->name(), 0, first_);
  ExpectHolds(client_, sequence->name(), 1, second_);
  EXPECT_EQ(client_.GetKvCache(kCache)->used_pages(), 5) << "the snapshot has let go of its pages";
}

// kLarge, of which no socket holds all.
void CreateLargeSequence(const Client& client) {
  constexpr std::int64_t kTokens = 128 << 10;  // 24 MiB a layer
  v1::CreateKvCacheRequest request = CacheRequest("large", kTokens / 256);
  request.mutable_kv_cache()->set_page_tokens(256);
  ASSERT_THAT(client.CreateKvCache(request), IsOk());
  ASSERT_THAT(client.CreateSequence(kLargeCache, "a"), IsOk());
  for (std::int32_t layer = 0; layer < kLayers; ++layer) {
    v1::AppendKeyValueRequest append = AppendRequest(kLarge, layer, Tokens());
    append.mutable_key()->set_shape(1, kTokens);
    append.mutable_key()->mutable_random()->set_seed(1);
    append.mutable_value()->set_shape(1, kTokens);
    append.mutable_value()->mutable_random()->set_seed(2);
    ASSERT_THAT(client.AppendKeyValue(append), IsOk());
  }
}

// Deletes the large cache, once nothing holds it any more; an error if that takes long.
absl::Status DeleteLargeCache(const Client& client) {
  absl::Status deleted;
  for (int i = 0; i < 2000; ++i) {
    deleted = client.DeleteKvCache(kLargeCache);
    if (deleted.ok()) break;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return deleted;
}

TEST_F(TransferTest, AReaderThatDoesNotReadHoldsOneChunkNotTheSequence) {
  CreateLargeSequence(client_);
  const auto before = client_.GetMemoryStats();
  ASSERT_THAT(client_.ResetPeakMemoryStats(), IsOk());
  const auto stub = Stub(daemon_.unix_address());
  grpc::ClientContext context;
  v1::ExportSequenceRequest name;
  name.set_name(kLarge);
  const auto call = stub->ExportSequence(&context, name);
  v1::SequencePart part;
  ASSERT_TRUE(call->Read(&part));
  absl::SleepFor(absl::Milliseconds(300));  // the server would be through with all of it
  EXPECT_LT(client_.GetMemoryStats()->peak_allocated_bytes(), before->allocated_bytes() + (std::int64_t{24} << 20));
  EXPECT_EQ(ErrorReason(client_.DeleteKvCache(kLargeCache)), "KV_CACHE_BUSY");
  context.TryCancel();
  EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_THAT(DeleteLargeCache(client_), IsOk()) << "a reader that has gone pins nothing";
}

TEST(VanishedPeerTest, ItsExportPinsNothing) {
  const Daemon daemon({"--peer_timeout=1s"});
  const Client client = Connect(daemon.unix_address());
  CreateLargeSequence(client);
  VanishingPeer peer(daemon.tcp_address());
  const auto stub = Stub(peer.address());
  grpc::ClientContext context;
  v1::ExportSequenceRequest name;
  name.set_name(kLarge);
  const auto call = stub->ExportSequence(&context, name);
  v1::SequencePart part;
  ASSERT_TRUE(call->Read(&part));
  peer.Vanish();
  EXPECT_EQ(ErrorReason(client.DeleteKvCache(kLargeCache)), "KV_CACHE_BUSY");
  EXPECT_THAT(DeleteLargeCache(client), IsOk());
  context.TryCancel();
}

TEST_F(TransferTest, UnknownNamesAreNotFound) {
  EXPECT_EQ(ErrorReason(Export(client_, "kvCaches/chat/sequences/none").status()), "SEQUENCE_NOT_FOUND");
  EXPECT_THAT(Export(client_, "none"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name")));
  const auto parts = Export(client_, kA);
  ASSERT_THAT(client_.DeleteKvCache(kCache), IsOk());
  EXPECT_EQ(ErrorReason(Import(client_, "b", *parts).status()), "KV_CACHE_NOT_FOUND");
}

}  // namespace
}  // namespace ridgeline::integration
