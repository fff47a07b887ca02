#include "tests/unit/device/attend_rows.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/attention/plan.h"
#include "server/base/status_macros.h"
#include "tests/unit/device/lane_io.h"

namespace ridgeline::device {
namespace {

using kernels::attention::Algorithm;
using kernels::attention::AttentionParams;
using kernels::attention::AttentionPlan;
using kernels::attention::Sequence;

constexpr std::int64_t kTokens = 100, kHeadDim = 8;

struct Held {
  const Sequence sequence = {.query_begin = 0, .query_tokens = kTokens, .key_begin = 0, .key_tokens = kTokens, .lse_begin = 0};
  const std::vector<float> rows = std::vector<float>(kTokens * kHeadDim, kEqualRows);
  const std::vector<float> untouched = std::vector<float>(kTokens * kHeadDim, kUntouched);
  Buffer sequences, input, output, workspace;
  std::vector<KernelPhase> phases;
  std::shared_ptr<const HostBuffer> result;
};

absl::Status Queue(Device& device, Algorithm algorithm, CancelToken cancel, Held& held) {
  Lane& lane = device.lane(0);
  AttentionParams params = {};
  params.shape = OneHead(kHeadDim);
  params.scale = 1;
  RIDGELINE_ASSIGN_OR_RETURN(const AttentionPlan plan, device.PlanAttention(params.shape, {&held.sequence, 1}, algorithm));
  EXPECT_EQ(plan.algorithm, algorithm);
  RIDGELINE_ASSIGN_OR_RETURN(held.sequences, lane.Upload({{&held.sequence, sizeof(held.sequence)}}, nullptr));
  RIDGELINE_ASSIGN_OR_RETURN(held.input, lane.Upload({SliceOf(held.rows)}, nullptr));
  RIDGELINE_ASSIGN_OR_RETURN(held.output, lane.Upload({SliceOf(held.untouched)}, nullptr));
  RIDGELINE_ASSIGN_OR_RETURN(held.workspace, lane.Allocate(plan.workspace_bytes));
  params.sequences = static_cast<const Sequence*>(held.sequences.data());
  params.query = params.key = params.value = held.input.data();
  params.output = held.output.data();
  params.workspace = held.workspace.data();
  RIDGELINE_ASSIGN_OR_RETURN(held.phases, lane.Attend(plan, params, {&held.sequence, 1}, std::move(cancel)));
  RIDGELINE_ASSIGN_OR_RETURN(held.result, lane.Download(std::move(held.output)));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<float>> AttendEqualRows(Device& device, Algorithm algorithm, CancelToken cancel,
                                                   std::vector<std::string>* phases) {
  Held held;
  const absl::Status queued = Queue(device, algorithm, std::move(cancel), held);
  const absl::Status completed = Complete(device.lane(0));  // after a failure too: what had been queued uses what is held
  RIDGELINE_RETURN_IF_ERROR(queued);
  RIDGELINE_RETURN_IF_ERROR(completed);
  if (phases != nullptr) {
    for (const KernelPhase& phase : held.phases) phases->push_back(phase.name);
  }
  return ValuesOf<float>(*held.result);
}

}  // namespace ridgeline::device
