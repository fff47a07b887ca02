// Many threads on one store: each sees its own sequence whole, and nothing is left behind.

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "tests/unit/engine/kv_cache/store_fixture.h"

namespace ridgeline::engine::kv_cache {
namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 200;

using StoreThreadsTest = StoreFixture;

TEST_F(StoreThreadsTest, SequencesOfSeveralThreadsStayApart) {
  BuildWithCache(256);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      const std::string id = absl::StrCat("s", t);
      for (int round = 0; round < kRounds; ++round) {
        Create(id);
        EXPECT_OK(Append(id, 0, Range(1000 * t, 6)));
        Fork(id, id + "-fork");
        EXPECT_OK(Append(id, 0, Range(1000 * t + 6, 3)));
        EXPECT_EQ(Read(id, 0), Range(1000 * t, 9));
        EXPECT_EQ(Read(id + "-fork", 0), Range(1000 * t, 6));
        EXPECT_OK(store_->DeleteSequence(alice_, NameOf(id)));
        EXPECT_OK(store_->DeleteSequence(alice_, NameOf(id + "-fork")));
      }
    });
  }
  std::thread watcher([this] {
    for (int round = 0; round < kRounds; ++round) {
      EXPECT_OK(store_->ListSequences(alice_, "kvCaches/c", {.page_size = 3}));
      EXPECT_GE(store_->statistics().free_pages, 0);
      EXPECT_EQ(store_->SweepExpired(), 0);
    }
  });
  for (std::thread& thread : threads) thread.join();
  watcher.join();
  EXPECT_EQ(UsedPages(), 0);
}

TEST_F(StoreThreadsTest, AnAppendIsAloneOnItsSequence) {
  BuildWithCache(256);
  Create("s");
  std::atomic<int> inside{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int done = 0; done < kRounds / kThreads;) {
        const auto use = Begin({"s"}, 0, {1});
        ASSERT_OK(use);
        if (*use == nullptr) {
          std::this_thread::yield();
          continue;
        }
        EXPECT_EQ(inside.fetch_add(1), 0);
        WriteTokens(**use, 0, {(*use)->sequences()[0].begin_tokens});
        inside.fetch_sub(1);
        (*use)->Commit();
        ++done;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Read("s", 0), Range(0, kRounds / kThreads * kThreads));
}

TEST_F(StoreThreadsTest, OneOfManyWhoCreateTheSameCacheGetsIt) {
  Build();
  std::atomic<int> made{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const std::string id = absl::StrCat("c", round % 8);
        if (store_->CreateCache(alice_, {.cache_id = id, .geometry = SmallGeometry(2)}).ok()) ++made;
        if (store_->DeleteCache(alice_, absl::StrCat("kvCaches/", id)).ok()) --made;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store_->statistics().caches, made.load());
  EXPECT_EQ(arenas_.num_live(), made.load());
}

}  // namespace
}  // namespace ridgeline::engine::kv_cache
