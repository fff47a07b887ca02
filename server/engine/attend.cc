#include "server/engine/attend.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cost.h"
#include "server/base/status_macros.h"
#include "server/engine/report.h"

namespace ridgeline::engine {
namespace {

using device::Buffer;
using device::Event;
using device::HostBuffer;
using device::HostSlice;
using device::Lane;
using kernels::attention::AttentionParams;
using kernels::attention::AttentionPlan;

// All that a call holds on the device from Queue to Release.
struct DeviceState {
  Buffer sequences, query, key, value, alibi_slopes, sink_logits, bias;
  Buffer output, log_sum_exp, workspace;
  std::shared_ptr<const HostBuffer> host_output, host_log_sum_exp;
  std::unique_ptr<Event> begin, uploaded, computed, downloaded;
  std::vector<device::KernelPhase> phases;
};

absl::StatusOr<Buffer> UploadTensor(Lane& lane, const TensorSource& source) {
  if (source.elements == 0) return Buffer();
  if (const auto* random = std::get_if<RandomFill>(&source.storage)) {
    return lane.UploadRandom(source.data_type, source.elements, random->seed, static_cast<float>(random->mean),
                             static_cast<float>(random->standard_deviation));
  }
  const auto& data = std::get<InlineData>(source.storage);
  return lane.Upload(data.slices, data.owner);
}

absl::StatusOr<Buffer> UploadTensor(Lane& lane, const std::optional<TensorSource>& source) {
  return source.has_value() ? UploadTensor(lane, *source) : Buffer();
}

absl::StatusOr<std::shared_ptr<const HostBuffer>> Download(Lane& lane, Buffer buffer) {
  if (buffer.size_bytes() == 0) return nullptr;
  return lane.Download(std::move(buffer));
}

// One call, and its launch: it leaves alone.
class AttendWork final : public Work {
 public:
  AttendWork(AttendProblem problem, AttentionPlan plan, AttendDone done, const AttendSurroundings& surroundings)
      : problem_(std::move(problem)), plan_(std::move(plan)), surroundings_(surroundings), done_(std::move(done)) {}

  absl::StatusOr<Turn> Begin(absl::Duration queue_time) override {
    result_.report.queue_time = queue_time;
    return Turn::kGo;
  }

  std::unique_ptr<Launch> MakeLaunch(absl::Span<Work* const> /*members*/) override;

  void Drop() override { DropInputs(); }

  void Finish(const absl::Status& status) override {
    surroundings_.metrics.CountAttend(status.code());
    if (status.ok()) {
      done_(std::move(result_));
    } else {
      done_(status);
    }
  }

  absl::Status Queue(Lane& lane, const device::CancelToken& cancel) {
    RIDGELINE_ASSIGN_OR_RETURN(state_.begin, lane.Record());
    RIDGELINE_RETURN_IF_ERROR(QueueUpload(lane));
    RIDGELINE_ASSIGN_OR_RETURN(state_.uploaded, lane.Record());
    RIDGELINE_ASSIGN_OR_RETURN(state_.phases, lane.Attend(plan_, Params(), problem_.sequences, cancel));
    RIDGELINE_ASSIGN_OR_RETURN(state_.computed, lane.Record());
    RIDGELINE_RETURN_IF_ERROR(QueueDownload(lane));
    RIDGELINE_ASSIGN_OR_RETURN(state_.downloaded, lane.Record());
    DropInputs();
    return absl::OkStatus();
  }

  void Release(const absl::Status& status) {
    if (status.ok()) {
      TakeTensors();
      FillReport(result_.report);
    }
    state_ = {};
  }

 private:
  absl::Status QueueUpload(Lane& lane) {
    // This object outlives the upload, so nothing else need own the table.
    const HostSlice table = {problem_.sequences.data(), problem_.sequence_table_bytes()};
    if (table.size_bytes > 0) {
      RIDGELINE_ASSIGN_OR_RETURN(state_.sequences, lane.Upload({&table, 1}, nullptr));
    }
    RIDGELINE_ASSIGN_OR_RETURN(state_.query, UploadTensor(lane, problem_.query));
    RIDGELINE_ASSIGN_OR_RETURN(state_.key, UploadTensor(lane, problem_.key));
    RIDGELINE_ASSIGN_OR_RETURN(state_.value, UploadTensor(lane, problem_.value));
    RIDGELINE_ASSIGN_OR_RETURN(state_.alibi_slopes, UploadTensor(lane, problem_.alibi_slopes));
    RIDGELINE_ASSIGN_OR_RETURN(state_.sink_logits, UploadTensor(lane, problem_.sink_logits));
    RIDGELINE_ASSIGN_OR_RETURN(state_.bias, UploadTensor(lane, problem_.bias));
    RIDGELINE_ASSIGN_OR_RETURN(state_.output, lane.Allocate(problem_.output_bytes));
    RIDGELINE_ASSIGN_OR_RETURN(state_.log_sum_exp, lane.Allocate(problem_.log_sum_exp_bytes));
    RIDGELINE_ASSIGN_OR_RETURN(state_.workspace, lane.Allocate(plan_.workspace_bytes));
    return absl::OkStatus();
  }

  // The lane's uploads keep the caller's bytes now, and let go of each when it has been read: a request need not take memory
  // twice while its kernel runs and its answer is sent.
  void DropInputs() {
    for (TensorSource* source : {&problem_.query, &problem_.key, &problem_.value}) source->storage = {};
    for (std::optional<TensorSource>* source : {&problem_.alibi_slopes, &problem_.sink_logits, &problem_.bias}) {
      if (source->has_value()) (*source)->storage = {};
    }
  }

  AttentionParams Params() const {
    return {.shape = problem_.shape,
            .scale = problem_.scale,
            .logit_soft_cap = problem_.logit_soft_cap,
            .sequences = static_cast<const kernels::attention::Sequence*>(state_.sequences.data()),
            .query = state_.query.data(),
            .key = state_.key.data(),
            .value = state_.value.data(),
            .alibi_slopes = static_cast<const float*>(state_.alibi_slopes.data()),
            .sink_logits = static_cast<const float*>(state_.sink_logits.data()),
            .bias = static_cast<const float*>(state_.bias.data()),
            .bias_sequence_stride_elems = problem_.bias_sequence_stride_elems,
            .bias_head_stride_elems = problem_.bias_head_stride_elems,
            .bias_row_stride_elems = problem_.bias_row_stride_elems,
            .output = state_.output.data(),
            .log_sum_exp = static_cast<float*>(state_.log_sum_exp.data()),
            .lse_head_stride_elems = problem_.lse_head_stride_elems,
            .workspace = state_.workspace.data()};
  }

  absl::Status QueueDownload(Lane& lane) {
    if (problem_.discard) return absl::OkStatus();
    RIDGELINE_ASSIGN_OR_RETURN(state_.host_output, Download(lane, std::move(state_.output)));
    RIDGELINE_ASSIGN_OR_RETURN(state_.host_log_sum_exp, Download(lane, std::move(state_.log_sum_exp)));
    return absl::OkStatus();
  }

  void TakeTensors() {
    if (problem_.discard) return;
    result_.output = {.data_type = problem_.shape.output_data_type,
                      .shape = std::move(problem_.output_shape),
                      .data = std::move(state_.host_output)};
    if (!problem_.wants_log_sum_exp) return;
    result_.log_sum_exp = {.data_type = kernels::DataType::kFloat32,
                           .shape = std::move(problem_.log_sum_exp_shape),
                           .data = std::move(state_.host_log_sum_exp)};
  }

  void FillReport(ExecutionReport& report) {
    const kernels::attention::Cost cost =
        kernels::attention::CountCost(problem_.shape, problem_.sequences.data(), problem_.optional_tensors(), plan_.algorithm);
    report.device = surroundings_.device.name;
    report.kernel = std::move(plan_.kernel);
    report.kernel_reason = std::move(plan_.reason);
    report.algorithm = plan_.algorithm;
    report.upload_time = state_.uploaded->Since(*state_.begin);
    report.kernel_time = state_.computed->Since(*state_.uploaded);
    const Event* phase_begin = state_.uploaded.get();
    for (const device::KernelPhase& phase : state_.phases) {
      report.kernel_phases.push_back({phase.name, phase.end->Since(*phase_begin)});
      phase_begin = phase.end.get();
    }
    report.download_time = state_.downloaded->Since(*state_.computed);
    report.flops = cost.flops;
    report.bytes = cost.bytes;
    report.workspace_bytes = plan_.workspace_bytes;
    PlaceOnRoofline(surroundings_.roofline, problem_.shape.data_type, report);
    surroundings_.metrics.CountAttendKernel(plan_.algorithm, report);
  }

  AttendProblem problem_;
  AttentionPlan plan_;
  const AttendSurroundings surroundings_;
  DeviceState state_;
  AttendResult result_;
  AttendDone done_;
};

class AttendLaunch final : public Launch {
 public:
  explicit AttendLaunch(AttendWork& work) : work_(work) {}

  absl::Status Queue(Lane& lane, const device::CancelToken& cancel) override { return work_.Queue(lane, cancel); }
  void Release(absl::Span<const absl::Status> outcomes) override { work_.Release(outcomes.front()); }

 private:
  AttendWork& work_;
};

std::unique_ptr<Launch> AttendWork::MakeLaunch(absl::Span<Work* const> /*members*/) {
  return std::make_unique<AttendLaunch>(*this);
}

}  // namespace

std::unique_ptr<Work> MakeAttendWork(AttendProblem problem, AttentionPlan plan, AttendDone done,
                                     const AttendSurroundings& surroundings) {
  return std::make_unique<AttendWork>(std::move(problem), std::move(plan), std::move(done), surroundings);
}

}  // namespace ridgeline::engine
