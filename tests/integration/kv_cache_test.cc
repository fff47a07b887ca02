// KV caches over a real daemon: what is appended is what attention sees, forks and truncates leave others alone, errors change
// nothing, and leases, quotas and eviction give pages back.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "client/cpp/error.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "ridgeline/v1/attention.grpc.pb.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/integration/raw_call.h"
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
constexpr char kB[] = "kvCaches/chat/sequences/b";

// One daemon serves all tests of this file; each has a cache "chat" of its own, with an empty sequence "a".
class KvCacheTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { daemon_ = new Daemon; }
  static void TearDownTestSuite() {
    daemon_->process().Signal(SIGTERM);
    EXPECT_EQ(daemon_->process().Wait(absl::Seconds(40)), 0);
    delete daemon_;
  }

  void SetUp() override { MakeCache(CacheRequest("chat", /*capacity_pages=*/64)); }
  void TearDown() override {
    EXPECT_THAT(client_.DeleteKvCache(kCache), IsOk());
    const auto load = client_.GetLoad();
    ASSERT_THAT(load, IsOk());
    EXPECT_EQ(load->kv_caches(), 0);
    EXPECT_EQ(load->used_kv_pages() + load->free_kv_pages(), 0);
  }

  void MakeCache(const v1::CreateKvCacheRequest& request) {
    ASSERT_THAT(client_.CreateKvCache(request), IsOk());
    ASSERT_THAT(client_.CreateSequence(kCache, "a"), IsOk());
  }

  // Instead of the one that SetUp made.
  void RemakeCache(const v1::CreateKvCacheRequest& request) {
    ASSERT_THAT(client_.DeleteKvCache(kCache), IsOk());
    MakeCache(request);
  }

  std::int64_t UsedPages() const { return client_.GetKvCache(kCache)->used_pages(); }
  std::vector<std::int64_t> Lengths(const std::string& name) const {
    const auto sequence = client_.GetSequence(name);
    EXPECT_THAT(sequence, IsOk());
    return {sequence->lengths().begin(), sequence->lengths().end()};
  }

  static Daemon* daemon_;
  const Client client_ = Connect(daemon_->unix_address());
};

Daemon* KvCacheTest::daemon_ = nullptr;

TEST_F(KvCacheTest, AnswersSayWhatWasMade) {
  const auto cache = client_.GetKvCache(kCache);
  ASSERT_THAT(cache, IsOk());
  EXPECT_EQ(cache->name(), kCache);
  EXPECT_EQ(cache->layers(), kLayers);
  EXPECT_EQ(cache->value_head_dim(), kValueHeadDim);
  EXPECT_EQ(cache->capacity_pages(), 64);
  EXPECT_EQ(cache->capacity_bytes(), 64 * kPageTokens * kLayers * kKvHeads * (kHeadDim + kValueHeadDim) * 4);
  EXPECT_EQ(cache->eviction_policy(), v1::EVICTION_POLICY_NONE);
  EXPECT_EQ(cache->lease_duration().seconds(), 600);
  EXPECT_EQ(cache->client(), "") << "who gives no name";
  EXPECT_EQ(cache->sequence_count(), 1);
  EXPECT_EQ(cache->instance_id(), client_.GetDevice()->instance_id());
  EXPECT_FALSE(cache->routing_token().empty());
  const auto sequence = client_.CreateSequence(kCache);
  ASSERT_THAT(sequence, IsOk());
  EXPECT_THAT(sequence->name(), HasSubstr("kvCaches/chat/sequences/"));
  EXPECT_THAT(sequence->lengths(), ElementsAre(0, 0));
  EXPECT_EQ(client_.CreateSequence(kCache, "a").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(client_.CreateKvCache(CacheRequest("chat", 4)).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(KvCacheTest, ListsComeInPages) {
  for (const char* id : {"e", "c", "b", "d"}) ASSERT_THAT(client_.CreateSequence(kCache, id), IsOk());
  std::vector<std::string> names;
  v1::ListSequencesRequest request;
  request.set_parent(kCache);
  request.set_page_size(2);
  int num_pages = 0;
  do {
    const auto page = client_.ListSequences(request);
    ASSERT_THAT(page, IsOk());
    EXPECT_LE(page->sequences_size(), 2);
    for (const v1::Sequence& sequence : page->sequences()) names.push_back(sequence.name().substr(sizeof(kA) - 2));
    request.set_page_token(page->next_page_token());
    ++num_pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(num_pages, 3);
  EXPECT_THAT(names, ElementsAre("a", "b", "c", "d", "e"));
  request.set_page_size(-1);
  EXPECT_THAT(client_.ListSequences(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("page_size")));
}

TEST_F(KvCacheTest, WhatIsAppendedIsWhatAttentionSees) {
  ASSERT_THAT(client_.CreateSequence(kCache, "b"), IsOk());
  const Tokens a = RandomTokens(7, 1);
  const Tokens b = RandomTokens(13, 2);
  // Both at once, ragged, to the second layer; the first one stays empty.
  Tokens both = a;
  both.Append(b);
  v1::AppendKeyValueRequest append = AppendRequest(kA, 1, both);
  append.add_sequences(kB);
  append.add_lengths(a.size());
  append.add_lengths(b.size());
  *append.mutable_key() = InlineTensor({both.size(), kKvHeads, kHeadDim}, both.key);
  *append.mutable_value() = InlineTensor({both.size(), kKvHeads, kValueHeadDim}, both.value);
  const auto appended = client_.AppendKeyValue(append);
  ASSERT_THAT(appended, IsOk());
  EXPECT_THAT(appended->lengths(), ElementsAre(7, 13));
  EXPECT_THAT(Lengths(kA), ElementsAre(0, 7));
  EXPECT_EQ(UsedPages(), 2 + 4);
  ExpectHolds(client_, kA, 1, a);
  ExpectHolds(client_, kB, 1, b);
  ExpectHolds(client_, kA, 0, Tokens());
}

TEST_F(KvCacheTest, AStepAppendsBeforeItAttends) {
  Tokens tokens;
  for (const std::int64_t length : {5, 1, 1, 4, 8, 1}) {
    const Tokens added = RandomTokens(length, 100 + static_cast<std::uint64_t>(tokens.size()));
    tokens.Append(added);
    const auto response = client_.Attend(StepRequest(kA, 0, added, 7));
    ASSERT_THAT(response, IsOk());
    ExpectAnswersDense(client_, *response, tokens, length, 7);
  }
  EXPECT_THAT(Lengths(kA), ElementsAre(20, 0));
}

TEST_F(KvCacheTest, ADecodeLoopRunsOnAStream) {
  client::AttendStream stream = client_.OpenAttendStream();
  Tokens tokens;
  for (int step = 0; step < 20; ++step) {
    const Tokens added = RandomTokens(1, 200 + static_cast<std::uint64_t>(step));
    tokens.Append(added);
    ASSERT_TRUE(stream.Write(StepRequest(kA, 1, added, 7)));
    v1::AttendResponse response;
    ASSERT_TRUE(stream.Read(&response)) << stream.Finish();
    ExpectAnswersDense(client_, response, tokens, 1, 7);
  }
  EXPECT_THAT(stream.Finish(), IsOk());
}

// The rule that the proto states: answers before, then the error; what was sent after may have run, and truncating mends that.
TEST_F(KvCacheTest, ABadStepEndsItsStreamAndTheLoopGoesOnOnAnother) {
  const Tokens tokens = RandomTokens(4, 3);
  {
    client::AttendStream stream = client_.OpenAttendStream();
    for (int step = 0; step < 3; ++step) {
      const Tokens all = tokens.First(step + 1);
      Tokens added;
      added.key.assign(all.key.end() - kKvHeads * kHeadDim, all.key.end());
      added.value.assign(all.value.end() - kKvHeads * kValueHeadDim, all.value.end());
      ASSERT_TRUE(stream.Write(StepRequest(kA, 0, added, 7)));
    }
    ASSERT_TRUE(stream.Write(StepRequest(kA, kLayers, RandomTokens(1, 4), 7)));
    // Whether they still leave the client is not ours to say.
    for (int i = 0; i < 5; ++i) static_cast<void>(stream.Write(StepRequest(kA, 0, RandomTokens(1, 5), 7)));
    v1::AttendResponse response;
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(stream.Read(&response));
      ExpectAnswersDense(client_, response, tokens.First(step + 1), 1, 7);
    }
    EXPECT_FALSE(stream.Read(&response));
    EXPECT_THAT(stream.Finish(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("paged.layer")));
  }
  absl::StatusOr<v1::Sequence> truncated;
  do {  // a step that had begun may still run
    truncated = client_.TruncateSequence(kA, 3);
  } while (absl::IsFailedPrecondition(truncated.status()));
  ASSERT_THAT(truncated, IsOk());
  ExpectHolds(client_, kA, 0, tokens.First(3));
}

TEST_F(KvCacheTest, ForksAndTruncatesLeaveTheirRelativesAlone) {
  Tokens a = RandomTokens(10, 1);
  ASSERT_THAT(client_.AppendKeyValue(AppendRequest(kA, 0, a)), IsOk());
  const auto fork = client_.ForkSequence(kA, "b");
  ASSERT_THAT(fork, IsOk());
  EXPECT_THAT(fork->lengths(), ElementsAre(10, 0));
  EXPECT_EQ(fork->shared_page_count(), 3);
  EXPECT_EQ(UsedPages(), 3) << "a fork takes no page";
  Tokens b = a;
  const Tokens more = RandomTokens(3, 2);
  ASSERT_THAT(client_.AppendKeyValue(AppendRequest(kB, 0, more)), IsOk());
  b.Append(more);
  EXPECT_EQ(UsedPages(), 5) << "the page that both had begun is copied, and one is new";
  ExpectHolds(client_, kA, 0, a);
  ExpectHolds(client_, kB, 0, b);

  const auto truncated = client_.TruncateSequence(kA, 5);
  ASSERT_THAT(truncated, IsOk());
  EXPECT_THAT(truncated->lengths(), ElementsAre(5, 0));
  a = a.First(5);
  const Tokens other = RandomTokens(6, 3);
  ASSERT_THAT(client_.AppendKeyValue(AppendRequest(kA, 0, other)), IsOk());
  a.Append(other);
  ExpectHolds(client_, kA, 0, a);
  ExpectHolds(client_, kB, 0, b);

  ASSERT_THAT(client_.DeleteSequence(kA), IsOk());
  ExpectHolds(client_, kB, 0, b);
  EXPECT_EQ(ErrorReason(client_.GetSequence(kA).status()), "SEQUENCE_NOT_FOUND");
  EXPECT_THAT(client_.TruncateSequence(kB, 14), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("length")));
}

TEST_F(KvCacheTest, AFullCacheSaysSoAndChangesNothing) {
  RemakeCache(CacheRequest("chat", /*capacity_pages=*/3));
  const Tokens tokens = RandomTokens(10, 1);
  ASSERT_THAT(client_.AppendKeyValue(AppendRequest(kA, 0, tokens)), IsOk());
  const auto appended = client_.AppendKeyValue(AppendRequest(kA, 0, RandomTokens(3, 2)));
  EXPECT_THAT(appended, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("3")));
  EXPECT_EQ(ErrorReason(appended.status()), "KV_CACHE_FULL");
  const auto attended = client_.Attend(StepRequest(kA, 0, RandomTokens(3, 2), 7));
  EXPECT_EQ(ErrorReason(attended.status()), "KV_CACHE_FULL");
  EXPECT_THAT(Lengths(kA), ElementsAre(10, 0));
  EXPECT_EQ(UsedPages(), 3);
  ExpectHolds(client_, kA, 0, tokens);
  // What fits still fits.
  EXPECT_THAT(client_.AppendKeyValue(AppendRequest(kA, 0, RandomTokens(2, 3))), IsOk());
}

TEST_F(KvCacheTest, BadRequestsNameTheirFieldAndChangeNothing) {
  ASSERT_THAT(client_.CreateSequence(kCache, "b"), IsOk());
  ASSERT_THAT(client_.CreateKvCache(CacheRequest("other", 4)), IsOk());
  ASSERT_THAT(client_.CreateSequence("kvCaches/other", "a"), IsOk());
  const Tokens tokens = RandomTokens(6, 1);
  ASSERT_THAT(client_.AppendKeyValue(AppendRequest(kA, 0, tokens)), IsOk());

  const auto expect_refused = [&](auto change, const char* field, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    v1::AttendRequest request = StepRequest(kA, 0, RandomTokens(2, 2), 7);
    change(request);
    const auto response = client_.Attend(request);
    EXPECT_EQ(response.status().code(), code) << field << ": " << response.status();
    if (*field != '\0') {
      EXPECT_THAT(client::ViolatedFields(response.status()), ElementsAre(HasSubstr(field)));
    }
    EXPECT_FALSE(ErrorReason(response.status()).empty());
  };
  using Request = v1::AttendRequest;
  const auto paged = [](Request& request) -> v1::PagedKeyValue& { return *request.mutable_paged(); };
  expect_refused([&](Request& r) { paged(r).set_layer(kLayers); }, "paged.layer");
  expect_refused([&](Request& r) { paged(r).set_layer(-1); }, "paged.layer");
  expect_refused([&](Request& r) { paged(r).clear_sequences(); }, "paged.sequences");
  expect_refused([&](Request& r) { paged(r).add_sequences(kB); }, "paged.sequences");
  expect_refused([&](Request& r) { paged(r).set_sequences(0, "a"); }, "paged.sequences");
  expect_refused([&](Request& r) { paged(r).clear_new_value(); }, "paged.new_value");
  expect_refused([&](Request& r) { paged(r).clear_new_key(); }, "paged.new_key");
  expect_refused([&](Request& r) { paged(r).mutable_new_key()->set_shape(1, 1); }, "paged.new_key");
  expect_refused([&](Request& r) { paged(r).mutable_new_key()->set_data_type(v1::DATA_TYPE_FLOAT16); }, "paged.new_key");
  expect_refused([&](Request& r) { paged(r).mutable_new_value()->set_shape(3, kHeadDim); }, "paged.new_value");
  expect_refused([&](Request& r) { r.mutable_query()->set_data_type(v1::DATA_TYPE_BFLOAT16); }, "query");
  expect_refused([&](Request& r) { *r.mutable_query() = InlineTensor({1, 2, 3, kHeadDim}, std::vector<float>(96)); }, "query");
  expect_refused([&](Request& r) { *r.mutable_query() = InlineTensor({1, 2, 4, 8}, std::vector<float>(64)); }, "query");
  expect_refused(
      [&](Request& r) {
        *r.mutable_options()->mutable_bias() = InlineTensor({1, 1, 2, 8}, std::vector<float>(16));
      },
      "options.bias");
  expect_refused([&](Request& r) { paged(r).set_sequences(0, "kvCaches/none/sequences/a"); }, "", absl::StatusCode::kNotFound);
  expect_refused([&](Request& r) { paged(r).set_sequences(0, "kvCaches/chat/sequences/none"); }, "",
                 absl::StatusCode::kNotFound);

  // Two rows: of one sequence twice, and of two caches.
  for (const char* second : {kA, "kvCaches/other/sequences/a"}) {
    v1::AppendKeyValueRequest append = AppendRequest(kA, 0, RandomTokens(2, 2));
    append.add_sequences(second);
    append.mutable_key()->set_shape(0, 2);
    append.mutable_key()->set_shape(1, 1);
    append.mutable_value()->set_shape(0, 2);
    append.mutable_value()->set_shape(1, 1);
    const auto response = client_.AppendKeyValue(append);
    EXPECT_THAT(response, StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(client::ViolatedFields(response.status()), ElementsAre(HasSubstr("sequences")));
  }

  EXPECT_THAT(Lengths(kA), ElementsAre(6, 0));
  EXPECT_THAT(Lengths(kB), ElementsAre(0, 0));
  ExpectHolds(client_, kA, 0, tokens);
  EXPECT_THAT(client_.DeleteKvCache("kvCaches/other"), IsOk());
}

TEST_F(KvCacheTest, BytesThatAreNoMessageAreAnInvalidArgument) {
  for (const char* method : {"CreateKvCache", "GetKvCache", "ListKvCaches", "DeleteKvCache", "RenewKvCacheLease",
                             "CreateSequence", "GetSequence", "ListSequences", "DeleteSequence", "ForkSequence",
                             "AppendKeyValue", "TruncateSequence", "ExportSequence", "ImportSequence"}) {
    const std::string path = std::string("/ridgeline.v1.KvCacheService/") + method;
    const RawAnswer answer = CallRaw(daemon_->unix_address(), path.c_str(), "\xff\xff");
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_EQ(answer.trailers.count("x-ridgeline-instance"), 1u) << method;
  }
}

TEST_F(KvCacheTest, TheLeastRecentlyUsedSequenceGoes) {
  v1::CreateKvCacheRequest request = CacheRequest("chat", /*capacity_pages=*/4);
  request.mutable_kv_cache()->set_eviction_policy(v1::EVICTION_POLICY_LEAST_RECENTLY_USED);
  RemakeCache(request);
  ASSERT_THAT(client_.CreateSequence(kCache, "b"), IsOk());
  ASSERT_THAT(client_.CreateSequence(kCache, "c"), IsOk());
  const Tokens a = RandomTokens(8, 1);
  ASSERT_THAT(client_.AppendKeyValue(AppendRequest(kA, 0, a)), IsOk());
  ASSERT_THAT(client_.AppendKeyValue(AppendRequest(kB, 0, RandomTokens(8, 2))), IsOk());
  ExpectHolds(client_, kA, 0, a);  // which makes b the one that was used longest ago, of those with pages
  ASSERT_THAT(client_.GetSequence("kvCaches/chat/sequences/c"), IsOk());
  ASSERT_THAT(client_.AppendKeyValue(AppendRequest("kvCaches/chat/sequences/c", 0, RandomTokens(4, 3))), IsOk());
  const absl::Status evicted = client_.GetSequence(kB).status();
  EXPECT_THAT(evicted, StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(ErrorReason(evicted), "SEQUENCE_EVICTED");
  EXPECT_EQ(ErrorReason(client_.Attend(PagedRequest(kB, 0, 1, 7)).status()), "SEQUENCE_EVICTED");
  EXPECT_EQ(client_.GetKvCache(kCache)->evicted_sequence_count(), 1);
  ExpectHolds(client_, kA, 0, a);
}

TEST_F(KvCacheTest, ACacheThatNobodyUsesGoesWithItsLease) {
  v1::CreateKvCacheRequest request = CacheRequest("brief", 16);
  request.mutable_kv_cache()->mutable_lease_duration()->set_seconds(1);
  ASSERT_THAT(client_.CreateKvCache(request), IsOk());
  ASSERT_THAT(client_.CreateSequence("kvCaches/brief", "a"), IsOk());
  // Asks for the load alone, which names no cache and renews no lease.
  bool is_gone = false;
  for (int i = 0; i < 2000 && !is_gone; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
    is_gone = client_.GetLoad()->kv_caches() == 1;
  }
  EXPECT_TRUE(is_gone);
  EXPECT_EQ(ErrorReason(client_.GetSequence("kvCaches/brief/sequences/a").status()), "KV_CACHE_NOT_FOUND");

  v1::RenewKvCacheLeaseRequest renew;
  renew.set_name(kCache);
  renew.mutable_lease_duration()->set_seconds(7200);
  const auto renewed = client_.RenewKvCacheLease(renew);
  ASSERT_THAT(renewed, IsOk());
  EXPECT_EQ(renewed->lease_duration().seconds(), 7200);
  EXPECT_GT(renewed->expire_time().seconds(), absl::ToUnixSeconds(absl::Now()) + 7000);
  renew.mutable_lease_duration()->set_seconds(-1);
  EXPECT_THAT(client_.RenewKvCacheLease(renew), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("lease_duration")));
}

TEST_F(KvCacheTest, TheLoadCountsPages) {
  ASSERT_THAT(client_.AppendKeyValue(AppendRequest(kA, 0, RandomTokens(10, 1))), IsOk());
  const auto load = client_.GetLoad();
  ASSERT_THAT(load, IsOk());
  EXPECT_EQ(load->kv_caches(), 1);
  EXPECT_EQ(load->used_kv_pages(), 3);
  EXPECT_EQ(load->free_kv_pages(), 61);
  EXPECT_EQ(load->lanes(), client_.GetDevice()->lanes());
  EXPECT_EQ(load->queued_requests(), 0);
  EXPECT_EQ(load->instance_id(), client_.GetDevice()->instance_id());
  EXPECT_FALSE(load->draining());
}

// Steps of several clients that share a cache, to sequences of their own: each sees its own tokens alone, however they were
// batched.
TEST_F(KvCacheTest, ManyCallersDecodeAtOnce) {
  constexpr int kCallers = 6;
  Daemon daemon({"--shared_kv_caches"});
  ASSERT_THAT(Connect(daemon.unix_address()).CreateKvCache(CacheRequest("chat", /*capacity_pages=*/256)), IsOk());
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      const std::string id = "s" + std::to_string(caller);
      const Client own = Connect(daemon.unix_address(), id);
      ASSERT_THAT(own.CreateSequence(kCache, id), IsOk());
      client::AttendStream stream = own.OpenAttendStream();
      Tokens tokens;
      for (int step = 0; step < 30; ++step) {
        const Tokens added = RandomTokens(step % 10 == 0 ? 7 : 1, static_cast<std::uint64_t>(1000 * caller + step));
        tokens.Append(added);
        v1::AttendResponse response;
        ASSERT_TRUE(stream.Write(StepRequest("kvCaches/chat/sequences/" + id, 0, added, 7)));
        ASSERT_TRUE(stream.Read(&response)) << stream.Finish();
        EXPECT_GE(response.report().batch_requests(), 1);
        ExpectAnswersDense(own, response, tokens, added.size(), 7);
      }
      EXPECT_THAT(stream.Finish(), IsOk());
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST_F(KvCacheTest, ACacheWithRunningWorkIsNotDeleted) {
  const std::int64_t tokens = support::LongTokens();
  v1::CreateKvCacheRequest request = CacheRequest("long", tokens / 256 + 1);
  request.mutable_kv_cache()->set_page_tokens(256);
  ASSERT_THAT(client_.CreateKvCache(request), IsOk());
  ASSERT_THAT(client_.CreateSequence("kvCaches/long", "a"), IsOk());
  const auto random = [](v1::Tensor& tensor, std::vector<std::int64_t> shape) {
    tensor.set_data_type(v1::DATA_TYPE_FLOAT32);
    for (const std::int64_t extent : shape) tensor.add_shape(extent);
    tensor.mutable_random();
  };
  v1::AttendRequest attend;
  attend.mutable_paged()->add_sequences("kvCaches/long/sequences/a");
  random(*attend.mutable_query(), {1, tokens, kQueryHeads, kHeadDim});
  random(*attend.mutable_paged()->mutable_new_key(), {1, tokens, kKvHeads, kHeadDim});
  random(*attend.mutable_paged()->mutable_new_value(), {1, tokens, kKvHeads, kValueHeadDim});
  attend.mutable_output()->set_discard(true);

  const auto stub =
      v1::AttentionService::NewStub(grpc::CreateChannel(daemon_->unix_address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  grpc::Status status;
  std::atomic<bool> has_ended = false;
  std::thread caller([&] {
    v1::AttendResponse response;
    status = stub->Attend(&context, attend, &response);
    has_ended = true;
  });
  while (client_.GetLoad()->running_requests() == 0 && !has_ended) absl::SleepFor(absl::Milliseconds(1));
  const absl::Status busy = client_.DeleteKvCache("kvCaches/long");
  EXPECT_THAT(busy, StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(ErrorReason(busy), "KV_CACHE_BUSY");
  EXPECT_EQ(ErrorReason(client_.DeleteSequence("kvCaches/long/sequences/a")), "SEQUENCE_BUSY");
  EXPECT_EQ(ErrorReason(client_.TruncateSequence("kvCaches/long/sequences/a", 0).status()), "SEQUENCE_BUSY");
  EXPECT_THAT(client_.ForkSequence("kvCaches/long/sequences/a", "b"), IsOk()) << "of what is committed: it waits for nothing";
  context.TryCancel();
  caller.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  absl::Status deleted;
  for (int i = 0; i < 2000; ++i) {
    deleted = client_.DeleteKvCache("kvCaches/long");
    if (deleted.ok()) break;
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_THAT(deleted, IsOk());
}

TEST(KvCacheQuotaTest, EachClientHasItsOwn) {
  Daemon daemon({"--max_kv_caches_per_client=1", "--max_kv_sequences_per_client=2", "--max_kv_pages_per_client=3"});
  const Client alice = Connect(daemon.unix_address(), "alice");
  const Client bob = Connect(daemon.unix_address(), "bob");
  ASSERT_THAT(alice.CreateKvCache(CacheRequest("chat", 16)), IsOk());
  EXPECT_EQ(ErrorReason(alice.CreateKvCache(CacheRequest("more", 16)).status()), "QUOTA_EXCEEDED");
  ASSERT_THAT(bob.CreateKvCache(CacheRequest("bobs", 16)), IsOk());
  ASSERT_THAT(alice.CreateSequence(kCache, "a"), IsOk());
  ASSERT_THAT(alice.CreateSequence(kCache, "b"), IsOk());
  const absl::Status third = alice.CreateSequence(kCache).status();
  EXPECT_THAT(third, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("2")));
  EXPECT_EQ(ErrorReason(third), "QUOTA_EXCEEDED");
  const Tokens tokens = RandomTokens(3 * kPageTokens, 1);
  ASSERT_THAT(alice.AppendKeyValue(AppendRequest(kA, 0, tokens)), IsOk());
  EXPECT_EQ(ErrorReason(alice.AppendKeyValue(AppendRequest(kA, 0, RandomTokens(1, 2))).status()), "QUOTA_EXCEEDED");
  ExpectHolds(alice, kA, 0, tokens);
  ASSERT_THAT(bob.CreateSequence("kvCaches/bobs", "a"), IsOk());
  EXPECT_THAT(bob.AppendKeyValue(AppendRequest("kvCaches/bobs/sequences/a", 0, tokens)), IsOk());
}

TEST(KvCacheLostTest, ATokenOfAnotherInstanceSaysThatTheCacheIsLost) {
  std::string token;
  {
    Daemon daemon;
    token = Connect(daemon.unix_address()).CreateKvCache(CacheRequest("chat", 4))->routing_token();
  }
  Daemon daemon;
  const Client with_token = Connect(daemon.unix_address(), "", token);
  for (const absl::Status& status : {with_token.GetKvCache(kCache).status(), with_token.GetSequence(kA).status(),
                                     with_token.AppendKeyValue(AppendRequest(kA, 0, RandomTokens(1, 1))).status(),
                                     with_token.Attend(PagedRequest(kA, 0, 1, 7)).status()}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound));
    EXPECT_EQ(ErrorReason(status), "KV_CACHE_LOST");
  }
  EXPECT_EQ(ErrorReason(Connect(daemon.unix_address()).GetKvCache(kCache).status()), "KV_CACHE_NOT_FOUND");
  // Its own token is no such thing.
  const std::string own = with_token.CreateKvCache(CacheRequest("other", 4))->routing_token();
  EXPECT_EQ(ErrorReason(Connect(daemon.unix_address(), "", own).GetKvCache(kCache).status()), "KV_CACHE_NOT_FOUND");
}

}  // namespace
}  // namespace ridgeline::integration
