#include "server/engine/kv_cache/page_pool.h"

#include <set>

#include "gtest/gtest.h"

namespace ridgeline::engine::kv_cache {
namespace {

TEST(PagePoolTest, TakesEachPageOnce) {
  ClientAccount account;
  PagePool pool(5);
  std::set<std::int32_t> pages;
  while (pool.num_free() > 0) pages.insert(pool.Take(&account));
  EXPECT_EQ(pages, (std::set<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.num_used(), 5);
  EXPECT_EQ(account.pages, 5);
}

TEST(PagePoolTest, IsFreeWhenTheLastLetsGo) {
  ClientAccount account;
  PagePool pool(2);
  const std::int32_t page = pool.Take(&account);
  pool.Share(page);
  pool.Share(page);
  EXPECT_EQ(pool.references(page), 3);
  EXPECT_EQ(pool.Release(page), nullptr);
  EXPECT_EQ(pool.Release(page), nullptr);
  EXPECT_EQ(pool.num_used(), 1);
  EXPECT_EQ(account.pages, 1);
  EXPECT_EQ(pool.Release(page), &account);
  EXPECT_EQ(pool.num_used(), 0);
  EXPECT_EQ(account.pages, 0);
}

TEST(PagePoolTest, TakesWhatWasFreedLastBeforeWhatNobodyTouched) {
  ClientAccount account;
  PagePool pool(4);
  const std::int32_t first = pool.Take(&account);
  const std::int32_t second = pool.Take(&account);
  pool.Release(first);
  pool.Release(second);
  EXPECT_EQ(pool.Take(&account), second);
  EXPECT_EQ(pool.Take(&account), first);
  EXPECT_EQ(pool.Take(&account), 2);
}

TEST(PagePoolTest, EachPageCountsAgainstWhoTookIt) {
  ClientAccount alice;
  ClientAccount bob;
  PagePool pool(3);
  const std::int32_t page = pool.Take(&alice);
  pool.Take(&bob);
  pool.Share(page);  // by bob's sequence, say
  EXPECT_EQ(alice.pages, 1);
  EXPECT_EQ(bob.pages, 1);
}

TEST(PagePoolDeathTest, ReleasingAFreePageIsOurMistake) {
  ClientAccount account;
  PagePool pool(1);
  const std::int32_t page = pool.Take(&account);
  pool.Release(page);
  EXPECT_DEATH(pool.Release(page), "references > 0");
}

}  // namespace
}  // namespace ridgeline::engine::kv_cache
