#include "client/cli/cache_names.h"

#include <string>

#include "client/cli/arguments.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::cli {
namespace {

TEST(CacheNamesTest, ShortAndFullNamesAreTheSame) {
  for (const std::string text : {"chat", "kvCaches/chat"}) {
    ASSERT_OK_AND_ASSIGN(const CacheName name, ParseCacheName(text));
    EXPECT_FALSE(name.is_sequence) << text;
    EXPECT_EQ(name.cache(), "kvCaches/chat") << text;
  }
  for (const std::string text : {"chat/a", "kvCaches/chat/sequences/a"}) {
    ASSERT_OK_AND_ASSIGN(const CacheName name, ParseCacheName(text));
    EXPECT_TRUE(name.is_sequence) << text;
    EXPECT_EQ(name.cache(), "kvCaches/chat") << text;
    EXPECT_EQ(name.sequence(), "kvCaches/chat/sequences/a") << text;
  }
}

TEST(CacheNamesTest, IdsMayBeLeftToTheDaemon) {
  ASSERT_OK_AND_ASSIGN(const CacheName cache, ParseCacheName(""));
  EXPECT_FALSE(cache.is_sequence);
  EXPECT_EQ(cache.cache_id, "");
  ASSERT_OK_AND_ASSIGN(const CacheName sequence, ParseCacheName("chat/"));
  EXPECT_TRUE(sequence.is_sequence);
  EXPECT_EQ(sequence.sequence_id, "");
}

TEST(CacheNamesTest, OtherNamesAreUsageErrors) {
  for (const std::string text : {"a/b/c", "kvCaches/chat/tokens/a", "kvCaches/chat/sequences", "a/b/c/d"}) {
    EXPECT_TRUE(IsUsageError(ParseCacheName(text).status())) << text;
  }
}

}  // namespace
}  // namespace ridgeline::cli
