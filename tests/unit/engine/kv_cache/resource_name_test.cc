#include "server/engine/kv_cache/resource_name.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::engine::kv_cache {
namespace {

using ::ridgeline::support::IsOkAndHolds;
using ::ridgeline::support::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ResourceNameTest, NamesAndPartsFit) {
  EXPECT_EQ(CacheName("a"), "kvCaches/a");
  EXPECT_EQ(SequenceName("a", "b-1"), "kvCaches/a/sequences/b-1");
  EXPECT_THAT(ParseCacheName("name", "kvCaches/a"), IsOkAndHolds("a"));
  ASSERT_OK_AND_ASSIGN(const SequencePath path, ParseSequenceName("name", "kvCaches/a/sequences/b-1"));
  EXPECT_EQ(path.cache_id, "a");
  EXPECT_EQ(path.sequence_id, "b-1");
}

TEST(ResourceNameTest, IdsHaveBounds) {
  for (const std::string& id : {std::string("a"), std::string("a1"), std::string("a-b"), std::string(63, 'z')}) {
    EXPECT_THAT(CheckOrMakeId("sequence_id", id), IsOkAndHolds(id));
  }
  for (const std::string& id : {std::string("A"), std::string("1a"), std::string("-a"), std::string("a-"), std::string("a_b"),
                                std::string("a/b"), std::string(64, 'z'), std::string("\xc3\xa4"), std::string("a\0b", 3)}) {
    const absl::Status status = CheckOrMakeId("sequence_id", id).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1 to 63"))) << id;
    EXPECT_EQ(base::ErrorField(status), "sequence_id");
  }
}

TEST(ResourceNameTest, WrongNamesAreRefused) {
  for (const char* name :
       {"", "kvCaches", "kvCaches/", "kvCaches/A", "kvcaches/a", "/kvCaches/a", "kvCaches/a/", "a", "kvCaches/a/sequences/b"}) {
    const absl::Status status = ParseCacheName("parent", name).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("kvCaches/{kv_cache}"))) << name;
    EXPECT_EQ(base::ErrorField(status), "parent");
  }
  for (const char* name : {"", "kvCaches/a", "kvCaches/a/sequences", "kvCaches/a/sequences/", "kvCaches//sequences/b",
                           "kvCaches/a/sequences/b/", "kvCaches/a/sequences/b/c", "kvCaches/a/sequence/b", "sequences/b",
                           "kvCaches/A/sequences/b", "kvCaches/a/sequences/sequences/b"}) {
    EXPECT_THAT(ParseSequenceName("name", name), StatusIs(absl::StatusCode::kInvalidArgument)) << name;
  }
}

TEST(ResourceNameTest, AMessageStaysShortAndPrintable) {
  const absl::Status status = ParseCacheName("name", std::string(1 << 20, '\n')).status();
  EXPECT_LT(status.message().size(), 1000u);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("\\n"), Not(HasSubstr("\n"))));
}

TEST(ResourceNameTest, IdsOfTheServersAreIdsAndDiffer) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(MakeId());
  EXPECT_EQ(ids.size(), 1000u);
  for (const std::string& id : ids) EXPECT_TRUE(IsId(id)) << id;
  ASSERT_OK_AND_ASSIGN(const std::string id, CheckOrMakeId("sequence_id", ""));
  EXPECT_TRUE(IsId(id));
}

TEST(ResourceNameTest, TokensSayTheirInstance) {
  EXPECT_EQ(InstanceOfToken(MakeRoutingToken("0123456789abcdef")), "0123456789abcdef");
  EXPECT_EQ(InstanceOfToken(MakeRoutingToken("host.example")), "host.example");
  for (const char* token : {"", ".", "x", "instance.", "instance.NOT-OURS", ".abc"}) EXPECT_EQ(InstanceOfToken(token), "");
}

}  // namespace
}  // namespace ridgeline::engine::kv_cache
