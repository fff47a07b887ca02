#include "server/engine/kv_cache/listing.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::engine::kv_cache {
namespace {

using ::ridgeline::support::StatusIs;
using ::testing::ElementsAre;

using Map = std::map<std::string, int>;

bool IsListed(int value) { return value >= 0; }

std::vector<int> Take(const Map& map, int page_size, std::string& token) {
  const auto place = ParseListRequest("kvCaches/", {.page_size = page_size, .page_token = token});
  EXPECT_OK(place);
  token.clear();
  return TakePage(map, *place, IsListed, token);
}

TEST(ListingTest, GoesOnWhereItStopped) {
  const Map map = {{"a", 1}, {"b", -1}, {"c", 3}, {"d", 4}, {"e", -1}};
  std::string token;
  EXPECT_THAT(Take(map, 1, token), ElementsAre(1));
  EXPECT_THAT(Take(map, 1, token), ElementsAre(3));
  EXPECT_THAT(Take(map, 1, token), ElementsAre(4));
  EXPECT_EQ(token, "");  // what is not listed makes no further page
}

TEST(ListingTest, SurvivesWhatChangesBetweenPages) {
  Map map = {{"a", 1}, {"b", 2}, {"d", 4}};
  std::string token;
  EXPECT_THAT(Take(map, 2, token), ElementsAre(1, 2));
  map.erase("b");
  map["c"] = 3;
  EXPECT_THAT(Take(map, 2, token), ElementsAre(3, 4));
  EXPECT_EQ(token, "");
}

TEST(ListingTest, SizesHaveADefaultAndAMost) {
  Map map;
  for (int i = 0; i < 2000; ++i) map[absl::StrCat("id-", i)] = i;
  std::string token;
  EXPECT_EQ(Take(map, 0, token).size(), 50u);
  EXPECT_EQ(Take(map, 1 << 30, token).size(), 1000u);
  const absl::Status status = ParseListRequest("kvCaches/", {.page_size = -1}).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(base::ErrorField(status), "page_size");
}

TEST(ListingTest, TokensOfOtherListsAndOtherPeopleAreRefused) {
  ListPlace caches;
  caches.collection = "kvCaches/";
  ListPlace sequences;
  sequences.collection = "kvCaches/a/sequences/";
  const std::string of_sequences = MakePageToken(sequences, "b");
  EXPECT_OK(ParseListRequest("kvCaches/a/sequences/", {.page_token = of_sequences}));
  for (const std::string& token : {of_sequences, std::string("%%%"), std::string("a"), std::string(1 << 20, 'A'),
                                   MakePageToken(caches, ""), MakePageToken(caches, "NO-ID")}) {
    const absl::Status status = ParseListRequest("kvCaches/", {.page_token = token}).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(base::ErrorField(status), "page_token");
  }
  EXPECT_THAT(ParseListRequest("kvCaches/b/sequences/", {.page_token = of_sequences}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace ridgeline::engine::kv_cache
