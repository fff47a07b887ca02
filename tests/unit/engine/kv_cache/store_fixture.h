// A store over host memory with a clock that moves when told to, and short ways to do the usual.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/engine/kv_cache/kv_cache_store.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/kv_cache/host_arenas.h"
#include "tests/unit/engine/kv_cache/token_memory.h"

namespace ridgeline::engine::kv_cache {

// 2 layers, pages of 4 tokens; keys and values of different sizes.
inline GeometryRequest SmallGeometry(std::int64_t capacity_pages) {
  return {.data_type = kernels::DataType::kFloat32,
          .layers = 2,
          .kv_heads = 1,
          .head_dim = 8,
          .value_head_dim = 16,
          .page_tokens = 4,
          .capacity_pages = capacity_pages};
}

class StoreFixture : public ::testing::Test {
 protected:
  void Build(KvCacheOptions options = {}) {
    options.instance_id = "instance-1";
    store_ = std::make_unique<KvCacheStore>(
        std::move(options), [this](std::int64_t size_bytes) { return arenas_.Allocate(size_bytes); }, clock_);
  }

  // The cache "kvCaches/c".
  void BuildWithCache(std::int64_t capacity_pages, EvictionPolicy policy = EvictionPolicy::kNone, KvCacheOptions options = {}) {
    Build(std::move(options));
    ASSERT_OK(
        store_->CreateCache(alice_, {.cache_id = "c", .geometry = SmallGeometry(capacity_pages), .eviction_policy = policy}));
  }

  static std::string NameOf(const std::string& id) { return absl::StrCat("kvCaches/c/sequences/", id); }

  void Create(const std::string& id) { ASSERT_OK(store_->CreateSequence(alice_, "kvCaches/c", id)); }
  void Fork(const std::string& from, const std::string& to) { ASSERT_OK(store_->ForkSequence(alice_, NameOf(from), to)); }

  absl::StatusOr<std::shared_ptr<const SequenceSelection>> Select(const std::vector<std::string>& ids, std::int64_t layer,
                                                                  std::vector<std::int64_t> append_tokens = {}) {
    SelectRequest request = {.layer = layer, .append_tokens = std::move(append_tokens)};
    for (const std::string& id : ids) request.sequences.push_back(NameOf(id));
    return store_->Select(alice_, request);
  }

  absl::StatusOr<std::unique_ptr<SequenceUse>> Begin(const std::vector<std::string>& ids, std::int64_t layer,
                                                     std::vector<std::int64_t> append_tokens = {}) {
    auto selection = Select(ids, layer, std::move(append_tokens));
    if (!selection.ok()) return selection.status();
    return store_->Begin(**selection);
  }

  // Appends the tokens to one layer, as work that succeeds does.
  absl::Status Append(const std::string& id, std::int64_t layer, const Tokens& tokens) {
    auto use = Begin({id}, layer, {static_cast<std::int64_t>(tokens.size())});
    if (!use.ok()) return use.status();
    if (*use == nullptr) return absl::UnavailableError("the sequence is in use");
    CopyPages(**use);
    WriteTokens(**use, 0, tokens);
    (*use)->Commit();
    return absl::OkStatus();
  }

  // What a layer holds; {-2} if it cannot be read.
  Tokens Read(const std::string& id, std::int64_t layer) {
    auto use = Begin({id}, layer);
    if (!use.ok() || *use == nullptr) return {-2};
    return ReadTokens(**use, 0);
  }

  SequenceInfo Info(const std::string& id) {
    auto info = store_->GetSequence(alice_, NameOf(id));
    EXPECT_OK(info);
    return info.ok() ? *info : SequenceInfo();
  }

  std::int64_t UsedPages() { return store_->statistics().used_pages; }

  const Caller alice_ = {.client = "alice"};
  const Caller bob_ = {.client = "bob"};
  support::FakeClock clock_;
  HostArenas arenas_;
  std::unique_ptr<KvCacheStore> store_;
};

// first, first + 1, ... first + count - 1
inline Tokens Range(std::int64_t first, std::int64_t count) {
  Tokens tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

}  // namespace ridgeline::engine::kv_cache
