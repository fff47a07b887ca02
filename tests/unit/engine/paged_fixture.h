// An engine with a KV cache, and a model of what is in it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/awaited.h"
#include "tests/unit/engine/engine_fixture.h"
#include "tests/unit/engine/paged_model.h"

namespace ridgeline::engine {

class PagedFixture : public EngineFixture {
 protected:
  using AppendAnswer = Awaited<absl::StatusOr<AppendKeyValueResult>>;

  void BuildCache(std::int64_t capacity_pages = 64, int num_lanes = 1, EngineOptions options = {},
                  kv_cache::EvictionPolicy policy = kv_cache::EvictionPolicy::kNone) {
    Build(std::move(options), num_lanes);
    ASSERT_OK(engine_->kv_caches().CreateCache({}, CacheRequest("c", capacity_pages, policy)));
  }

  // A sequence with so many tokens in layer 0; its name.
  std::string MakeSequence(const std::string& id, std::int64_t tokens = 0) {
    const std::string name = NameOf("c", id);
    EXPECT_OK(engine_->kv_caches().CreateSequence({}, "kvCaches/c", id));
    model_.sequences()[name];
    if (tokens > 0) Fill(name, 0, tokens);
    return name;
  }

  void Fill(const std::string& name, std::int64_t layer, std::int64_t tokens) {
    const PagedCall call = MakeCall(random_, {name}, layer, {tokens}, /*appends=*/true);
    AppendAnswer answer;
    engine_->AppendKeyValue(call.Append(), {.origin = {.request_id = "test"}}, answer.Callback());
    ASSERT_OK(answer.Wait());
    model_.Append(call);
  }

  std::shared_ptr<Call> Submit(const PagedCall& call, const Answer& answer,
                               CallContext context = {.origin = {.request_id = "test"}}) {
    return engine_->Attend(call.Attend(), std::move(context), Answer(answer).Callback());
  }

  // Until no lane runs anything: of work that was cancelled while it ran, the pages have come back.
  void AwaitIdle() {
    while (engine_->load().busy_lanes > 0) std::this_thread::yield();
  }

  std::int64_t used_pages() { return engine_->kv_caches().GetCache({}, "kvCaches/c")->used_pages; }

  Random random_{7};
  PagedModel model_;
};

}  // namespace ridgeline::engine
