// Whose a KV cache is: its maker's, proven or claimed. To others it is not there, and every method says so in the same words.
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "client/cpp/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/kv_cache_fixture.h"
#include "tests/integration/tls_fixture.h"
#include "tests/support/daemon.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::integration {
namespace {

using client::Client;
using client::ErrorReason;
using support::Daemon;
using support::IsOk;
using support::StatusIs;

using Parts = std::vector<v1::SequencePart>;

Parts Export(const Client& client, const std::string& sequence) {
  Parts parts;
  EXPECT_THAT(client.ExportSequence(sequence,
                                    [&](v1::SequencePart part) {
                                      parts.push_back(std::move(part));
                                      return absl::OkStatus();
                                    }),
              IsOk());
  return parts;
}

absl::Status Import(const Client& client, const std::string& cache, const Parts& parts) {
  std::size_t next = 0;
  return client
      .ImportSequence(cache, "moved",
                      [&]() -> absl::StatusOr<std::optional<v1::SequencePart>> {
                        if (next == parts.size()) return std::nullopt;
                        return parts[next++];
                      })
      .status();
}

absl::Status AttendOnStream(const Client& client, const v1::AttendRequest& request) {
  client::AttendStream stream = client.OpenAttendStream(absl::Seconds(20));
  v1::AttendResponse response;
  EXPECT_FALSE(stream.Write(request) && stream.Read(&response));
  return stream.Finish();
}

absl::Status RopeAppend(const Client& client, const std::string& sequence) {
  const Tokens tokens = RandomTokens(1, 1);
  v1::FuseRequest request;
  request.mutable_rope_append()->add_sequences(sequence);
  *request.mutable_rope_append()->mutable_new_key() = InlineTensor({1, 1, kKvHeads, kHeadDim}, tokens.key);
  *request.mutable_rope_append()->mutable_new_value() = InlineTensor({1, 1, kKvHeads, kValueHeadDim}, tokens.value);
  return client.Fuse(request).status();
}

// What the client is told by each method that names a cache or a sequence; `parts` are of an export.
std::vector<std::pair<const char*, absl::Status>> TryAll(const Client& client, const std::string& cache, const Parts& parts) {
  const std::string sequence = absl::StrCat(cache, "/sequences/a");
  v1::RenewKvCacheLeaseRequest renew;
  renew.set_name(cache);
  v1::ListSequencesRequest list;
  list.set_parent(cache);
  return {{"GetKvCache", client.GetKvCache(cache).status()},
          {"RenewKvCacheLease", client.RenewKvCacheLease(renew).status()},
          {"DeleteKvCache", client.DeleteKvCache(cache)},
          {"CreateSequence", client.CreateSequence(cache, "b").status()},
          {"GetSequence", client.GetSequence(sequence).status()},
          {"ListSequences", client.ListSequences(list).status()},
          {"ForkSequence", client.ForkSequence(sequence, "b").status()},
          {"TruncateSequence", client.TruncateSequence(sequence, 0).status()},
          {"DeleteSequence", client.DeleteSequence(sequence)},
          {"AppendKeyValue", client.AppendKeyValue(AppendRequest(sequence, 0, RandomTokens(1, 1))).status()},
          {"Attend", client.Attend(PagedRequest(sequence, 0, 1, 7)).status()},
          {"Attend, appending", client.Attend(StepRequest(sequence, 0, RandomTokens(1, 1), 7)).status()},
          {"AttendStream", AttendOnStream(client, PagedRequest(sequence, 0, 1, 7))},
          {"Fuse", RopeAppend(client, sequence)},
          {"ExportSequence", client.ExportSequence(sequence, [](const v1::SequencePart&) { return absl::OkStatus(); })},
          {"ImportSequence", Import(client, cache, parts)}};
}

// A cache of `owner` is there, and `other` cannot tell it from one that never was.
void ExpectUnseen(const Client& owner, const Client& other) {
  const Tokens tokens = RandomTokens(5, 3);
  ASSERT_THAT(owner.CreateKvCache(CacheRequest("chat", 8)), IsOk());
  ASSERT_THAT(owner.CreateSequence("kvCaches/chat", "a"), IsOk());
  ASSERT_THAT(owner.AppendKeyValue(AppendRequest("kvCaches/chat/sequences/a", 0, tokens)), IsOk());
  const Parts parts = Export(owner, "kvCaches/chat/sequences/a");

  const auto of_owners = TryAll(other, "kvCaches/chat", parts);
  const auto of_nobodys = TryAll(other, "kvCaches/none", parts);
  for (std::size_t i = 0; i < of_owners.size(); ++i) {
    const auto& [method, status] = of_owners[i];
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound)) << method;
    EXPECT_EQ(ErrorReason(status), "KV_CACHE_NOT_FOUND") << method;
    EXPECT_EQ(absl::StrReplaceAll(status.message(), {{"chat", "none"}}), of_nobodys[i].second.message()) << method;
    EXPECT_EQ(ErrorReason(of_nobodys[i].second), "KV_CACHE_NOT_FOUND") << method;
  }
  EXPECT_EQ(other.ListKvCaches()->kv_caches_size(), 0);
  // The name is as free for others as any, so that making one tells nothing either.
  ASSERT_THAT(other.CreateKvCache(CacheRequest("chat", 4)), IsOk());
  ASSERT_THAT(other.DeleteKvCache("kvCaches/chat"), IsOk());

  EXPECT_EQ(owner.ListKvCaches()->kv_caches_size(), 1);
  ExpectHolds(owner, "kvCaches/chat/sequences/a", 0, tokens);
  // What was exported may go where its reader may write.
  ASSERT_THAT(other.CreateKvCache(CacheRequest("own", 8)), IsOk());
  EXPECT_THAT(Import(other, "kvCaches/own", parts), IsOk());
  ExpectHolds(other, "kvCaches/own/sequences/moved", 0, tokens);
}

using OwnershipTest = TlsFixture;

TEST_F(OwnershipTest, ACacheIsOfTheNameInTheCertificate) {
  Daemon daemon(FlagsForKnownClients());
  const Client alice = ConnectAs(daemon.tcp_address(), "alice", /*claim=*/"bob");
  ExpectUnseen(alice, ConnectAs(daemon.tcp_address(), "bob", /*claim=*/"alice"));
  // Another connection of the same name has it.
  EXPECT_THAT(ConnectAs(daemon.tcp_address(), "alice").GetKvCache("kvCaches/chat"), IsOk());
}

TEST_F(OwnershipTest, ACertificateWithoutANameIsNoWayToClaimOne) {
  Daemon daemon(FlagsForKnownClients());
  const Client alice = ConnectAs(daemon.tcp_address(), "alice");
  const Client nameless = ConnectWith(daemon.tcp_address(), Tls(authority_->IssueNameless()), /*name=*/"alice");
  ExpectUnseen(alice, nameless);
  EXPECT_EQ(nameless.GetKvCache("kvCaches/own")->client(), "");
}

TEST(ClaimedNameTest, ACacheIsOfTheNameThatItsMakerClaimed) {
  Daemon daemon;
  ExpectUnseen(Connect(daemon.unix_address(), "alice"), Connect(daemon.tcp_address(), "bob"));
}

TEST(ClaimedNameTest, ThoseWhoGiveNoNameAreOneClient) {
  Daemon daemon;
  const Client nobody = Connect(daemon.unix_address(), "");
  ExpectUnseen(nobody, Connect(daemon.unix_address(), "bob"));
  EXPECT_THAT(Connect(daemon.tcp_address(), "").GetKvCache("kvCaches/chat"), IsOk());
}

TEST(ClaimedNameTest, CachesMayBeShared) {
  Daemon daemon({"--shared_kv_caches"});
  const Client alice = Connect(daemon.unix_address(), "alice");
  const Client bob = Connect(daemon.unix_address(), "bob");
  ASSERT_THAT(alice.CreateKvCache(CacheRequest("chat", 8)), IsOk());
  EXPECT_EQ(bob.ListKvCaches()->kv_caches(0).client(), "alice");
  EXPECT_EQ(ErrorReason(bob.CreateKvCache(CacheRequest("chat", 8)).status()), "KV_CACHE_EXISTS");
  EXPECT_EQ(bob.CreateSequence("kvCaches/chat", "a")->client(), "bob");
  EXPECT_THAT(alice.DeleteSequence("kvCaches/chat/sequences/a"), IsOk());
}

}  // namespace
}  // namespace ridgeline::integration
