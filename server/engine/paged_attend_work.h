// One attention call over pages, as work: it holds its sequences from the time its launch leaves until that has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/device/device.h"
#include "server/engine/attend.h"
#include "server/engine/call_context.h"
#include "server/engine/engine.h"
#include "server/engine/kv_cache/kv_cache_store.h"
#include "server/engine/validate_paged.h"
#include "server/engine/work.h"

namespace ridgeline::engine {

// Outlives all work.
struct PagedSurroundings {
  const AttendSurroundings& attend;
  const device::Device& device;
  kv_cache::KvCacheStore& store;
};

class PagedAttendWork final : public Work {
 public:
  PagedAttendWork(PagedAttendProblem problem, AttendDone done, const PagedSurroundings& surroundings);

  absl::StatusOr<Turn> Begin(absl::Duration queue_time) override;
  std::unique_ptr<Launch> MakeLaunch(absl::Span<Work* const> members) override;
  void Drop() override;
  void Finish(const absl::Status& status) override;

  // ---- For its launch.
  const AttendProblem& problem() const { return problem_.attend; }
  const kv_cache::SequenceUse& use() const { return *use_; }
  // The lane keeps what it still reads of them.
  void DropInputs();
  void Succeed(AttendResult result);
  void Fail();

 private:
  PagedAttendProblem problem_;
  const PagedSurroundings surroundings_;
  std::unique_ptr<kv_cache::SequenceUse> use_;  // between Begin and the end of the launch
  absl::Duration queue_time_;
  AttendResult result_;
  AttendDone done_;
};

// `workspace_bytes` is that of its plan alone.
WorkTraits TraitsOf(const PagedAttendProblem& problem, std::int64_t workspace_bytes, const CallContext& context);

}  // namespace ridgeline::engine
