// Keys and values appended to sequences of a cache, as work: of an AppendKeyValue call, or of a chunk of an import.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/engine/call_context.h"
#include "server/engine/engine.h"
#include "server/engine/kv_cache/kv_cache_store.h"
#include "server/engine/validate_paged.h"
#include "server/engine/work.h"

namespace ridgeline::engine {

class AppendWork final : public Work {
 public:
  // `store` outlives all work.
  AppendWork(AppendProblem problem, kv_cache::KvCacheStore& store, AppendKeyValueDone done);

  absl::StatusOr<Turn> Begin(absl::Duration queue_time) override;
  std::unique_ptr<Launch> MakeLaunch(absl::Span<Work* const> members) override;
  void Drop() override;
  void Finish(const absl::Status& status) override;

  // ---- For its launch.
  const TensorSource& key() const { return problem_.key; }
  const TensorSource& value() const { return problem_.value; }
  const kv_cache::SequenceUse& use() const { return *use_; }
  // The lane keeps what it still reads of them.
  void DropInputs();
  void Succeed();
  void Fail() { use_ = nullptr; }

 private:
  AppendProblem problem_;
  kv_cache::KvCacheStore& store_;
  std::unique_ptr<kv_cache::SequenceUse> use_;  // between Begin and the end of the launch
  AppendKeyValueResult result_;
  AppendKeyValueDone done_;
};

WorkTraits TraitsOf(const AppendProblem& problem, const CallContext& context);

}  // namespace ridgeline::engine
