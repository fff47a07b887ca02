#include "server/engine/paged_attend_work.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/casts.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/saturating.h"
#include "server/base/status_macros.h"
#include "server/engine/paged_attend_launch.h"

namespace ridgeline::engine {
namespace {

using kernels::attention::AttentionShape;
using kernels::attention::Sequence;

bool IsRandom(const TensorSource& tensor) { return std::holds_alternative<RandomFill>(tensor.storage); }

// What decides that two calls can share a launch: everything that a launch has once.
std::string BatchKey(const PagedAttendProblem& paged) {
  const AttendProblem& problem = paged.attend;
  // Tensors for each head, and those that the device makes, come with one call.
  if (problem.alibi_slopes.has_value() || problem.sink_logits.has_value()) return "";
  if (IsRandom(problem.query) || IsRandom(problem.key) || IsRandom(problem.value)) return "";
  const AttentionShape& shape = problem.shape;
  return absl::StrCat("attend ", paged.selection->cache_uid(), " ", paged.selection->layer(), " ", shape.query_heads, " ",
                      static_cast<int>(shape.output_data_type), " ", shape.window_left, " ", shape.window_right, " ",
                      problem.algorithm.has_value() ? Name(*problem.algorithm) : "any", " ",
                      absl::Hex(absl::bit_cast<std::uint32_t>(problem.scale)), " ",
                      absl::Hex(absl::bit_cast<std::uint32_t>(problem.logit_soft_cap)), " ", problem.discard, " ",
                      problem.wants_log_sum_exp ? problem.lse_head_stride_elems : 0);
}

}  // namespace

PagedAttendWork::PagedAttendWork(PagedAttendProblem problem, AttendDone done, const PagedSurroundings& surroundings)
    : problem_(std::move(problem)), surroundings_(surroundings), done_(std::move(done)) {}

absl::StatusOr<Turn> PagedAttendWork::Begin(absl::Duration queue_time) {
  queue_time_ = queue_time;
  RIDGELINE_ASSIGN_OR_RETURN(use_, surroundings_.store.Begin(*problem_.selection));
  return use_ != nullptr ? Turn::kGo : Turn::kNotNow;
}

std::unique_ptr<Launch> PagedAttendWork::MakeLaunch(absl::Span<Work* const> members) {
  std::vector<PagedAttendWork*> own;
  own.reserve(members.size());
  for (Work* member : members) own.push_back(static_cast<PagedAttendWork*>(member));
  return std::make_unique<PagedAttendLaunch>(std::move(own), surroundings_);
}

void PagedAttendWork::DropInputs() {
  AttendProblem& problem = problem_.attend;
  for (TensorSource* source : {&problem.query, &problem.key, &problem.value}) source->storage = {};
  for (std::optional<TensorSource>* source : {&problem.alibi_slopes, &problem.sink_logits}) {
    if (source->has_value()) (*source)->storage = {};
  }
}

void PagedAttendWork::Succeed(AttendResult result) {
  use_->Commit();
  use_ = nullptr;
  result_ = std::move(result);
  result_.report.queue_time = queue_time_;
}

void PagedAttendWork::Fail() { use_ = nullptr; }

void PagedAttendWork::Drop() {
  DropInputs();
  problem_.selection = nullptr;
}

void PagedAttendWork::Finish(const absl::Status& status) {
  surroundings_.attend.metrics.CountAttend(status.code());
  if (status.ok()) {
    done_(std::move(result_));
  } else {
    done_(status);
  }
}

WorkTraits TraitsOf(const PagedAttendProblem& problem, std::int64_t workspace_bytes, const CallContext& context) {
  std::int64_t longest = 0;
  std::int64_t total = 0;
  for (const Sequence& sequence : problem.attend.sequences) {
    longest = std::max(longest, sequence.query_tokens);
    total += sequence.query_tokens;
  }
  return {.client = context.caller.client,
          .device_bytes = kernels::SaturatingAdd(problem.attend.tensor_bytes(), workspace_bytes),
          .deadline = context.deadline,
          .size = longest <= kMaxDecodeTokens ? WorkSize::kDecode : WorkSize::kPrefill,
          .tokens = total,
          .batch_key = BatchKey(problem),
          .accesses = problem.accesses,
          .origin = context.origin,
          .operation = "Attend"};
}

}  // namespace ridgeline::engine
