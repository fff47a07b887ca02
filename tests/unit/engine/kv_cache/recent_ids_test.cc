#include "server/engine/kv_cache/recent_ids.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ridgeline::engine::kv_cache {
namespace {

TEST(RecentIdsTest, TheOldestGoesFirst) {
  RecentIds ids(2);
  ids.Add("a");
  ids.Add("b");
  ids.Add("c");
  EXPECT_FALSE(ids.Contains("a"));
  EXPECT_TRUE(ids.Contains("b"));
  EXPECT_TRUE(ids.Contains("c"));
  EXPECT_EQ(ids.size(), 2u);
}

TEST(RecentIdsTest, WhatWasRemovedTakesNoRoom) {
  RecentIds ids(2);
  ids.Add("a");
  ids.Add("b");
  ids.Remove("a");
  ids.Remove("never");
  ids.Add("c");
  EXPECT_TRUE(ids.Contains("b"));
  ids.Remove("b");
  ids.Add("b");  // is the newest now
  ids.Add("d");
  EXPECT_FALSE(ids.Contains("c"));
  EXPECT_TRUE(ids.Contains("b"));
}

TEST(RecentIdsTest, StaysWithinItsBound) {
  RecentIds ids(100);
  for (int i = 0; i < 10000; ++i) ids.Add(absl::StrCat("id-", i));
  EXPECT_EQ(ids.size(), 100u);
  EXPECT_TRUE(ids.Contains("id-9900"));
  EXPECT_FALSE(ids.Contains("id-9899"));
}

}  // namespace
}  // namespace ridgeline::engine::kv_cache
