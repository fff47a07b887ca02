// Successive tokens of one layer of a sequence, read out of their pages, as work.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/engine/kv_cache/kv_cache_store.h"
#include "server/engine/sequence_transfer.h"
#include "server/engine/work.h"

namespace ridgeline::engine {

struct GatherProblem {
  std::shared_ptr<const kv_cache::SequenceSelection> selection;  // of one sequence, which has the tokens
  std::int64_t token_begin = 0;
  std::int64_t tokens = 0;
};

class GatherWork final : public Work {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<OutgoingChunk>)>;

  // `store` outlives all work.
  GatherWork(GatherProblem problem, kv_cache::KvCacheStore& store, Done done);

  absl::StatusOr<Turn> Begin(absl::Duration queue_time) override;
  std::unique_ptr<Launch> MakeLaunch(absl::Span<Work* const> members) override;
  void Drop() override { problem_.selection = nullptr; }
  void Finish(const absl::Status& status) override;

  // ---- For its launch.
  const GatherProblem& problem() const { return problem_; }
  const kv_cache::SequenceUse& use() const { return *use_; }
  void Succeed(OutgoingChunk chunk);
  void Fail() { use_ = nullptr; }

 private:
  GatherProblem problem_;
  kv_cache::KvCacheStore& store_;
  std::unique_ptr<kv_cache::SequenceUse> use_;  // between Begin and the end of the launch
  OutgoingChunk result_;
  Done done_;
};

}  // namespace ridgeline::engine
