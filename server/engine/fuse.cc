#include "server/engine/fuse.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/fused/op_info.h"
#include "server/base/status_macros.h"
#include "server/engine/launch_inputs.h"
#include "server/engine/page_tables.h"
#include "server/engine/report.h"

namespace ridgeline::engine {
namespace {

using device::Buffer;
using device::Event;
using device::HostBuffer;
using device::Lane;
using kernels::fused::FusedParams;

class FuseWork final : public Work {
 public:
  FuseWork(FuseProblem problem, FuseDone done, const FuseSurroundings& surroundings)
      : problem_(std::move(problem)), surroundings_(surroundings), done_(std::move(done)) {}

  absl::StatusOr<Turn> Begin(absl::Duration queue_time) override {
    result_.report.queue_time = queue_time;
    if (problem_.selection == nullptr) return Turn::kGo;
    RIDGELINE_ASSIGN_OR_RETURN(use_, surroundings_.kv_caches.Begin(*problem_.selection));
    return use_ != nullptr ? Turn::kGo : Turn::kNotNow;
  }

  std::unique_ptr<Launch> MakeLaunch(absl::Span<Work* const> /*members*/) override;

  void Drop() override {
    DropInputs();
    problem_.selection = nullptr;
  }

  void Finish(const absl::Status& status) override {
    surroundings_.metrics.CountFuse(status.code());
    if (status.ok()) {
      done_(std::move(result_));
    } else {
      done_(status);
    }
  }

  // ---- For its launch.
  const FuseProblem& problem() const { return problem_; }
  const FuseSurroundings& surroundings() const { return surroundings_; }
  const kv_cache::SequenceUse* use() const { return use_.get(); }  // null: nothing is appended
  FuseResult& result() { return result_; }

  // The lane keeps what it still reads of them.
  void DropInputs() {
    for (TensorSource* source : {&problem_.input, &problem_.other, &problem_.weight, &problem_.bias, &problem_.positions,
                                 &problem_.key, &problem_.value}) {
      source->storage = {};
    }
  }

  void Commit() {
    if (use_ == nullptr) return;
    for (const kv_cache::UsedSequence& sequence : use_->sequences()) result_.lengths.push_back(sequence.end_tokens);
    use_->Commit();
    use_ = nullptr;
  }
  void Abort() { use_ = nullptr; }

 private:
  FuseProblem problem_;
  const FuseSurroundings surroundings_;
  std::unique_ptr<kv_cache::SequenceUse> use_;  // between Begin and the end of the launch
  FuseResult result_;
  FuseDone done_;
};

// One call: it leaves alone.
class FuseLaunch final : public Launch {
 public:
  explicit FuseLaunch(FuseWork& work) : work_(work), problem_(work.problem()) {}

  absl::Status Queue(Lane& lane, const device::CancelToken& cancel) override {
    AddInputs();
    RIDGELINE_ASSIGN_OR_RETURN(begin_, lane.Record());
    RIDGELINE_RETURN_IF_ERROR(inputs_.Queue(lane));
    RIDGELINE_RETURN_IF_ERROR(AllocateOutputs(lane));
    RIDGELINE_ASSIGN_OR_RETURN(uploaded_, lane.Record());
    RIDGELINE_RETURN_IF_ERROR(QueueKernels(lane, cancel));
    RIDGELINE_ASSIGN_OR_RETURN(computed_, lane.Record());
    RIDGELINE_RETURN_IF_ERROR(QueueDownload(lane));
    RIDGELINE_ASSIGN_OR_RETURN(downloaded_, lane.Record());
    work_.DropInputs();
    return absl::OkStatus();
  }

  void Release(absl::Span<const absl::Status> outcomes) override {
    if (!outcomes.front().ok()) return work_.Abort();
    work_.Commit();
    FuseResult& result = work_.result();
    TakeOutputs(result);
    FillReport(result);
  }

 private:
  void AddInputs() {
    if (work_.use() != nullptr) {
      tables_.Add(*work_.use());
      tables_.AddTo(inputs_);
    }
    for (const TensorSource* source : problem_.sources()) sections_.push_back(inputs_.AddTensors({source}));
  }

  absl::Status AllocateOutputs(Lane& lane) {
    RIDGELINE_ASSIGN_OR_RETURN(output_, lane.Allocate(problem_.output_bytes()));
    RIDGELINE_ASSIGN_OR_RETURN(residual_output_, lane.Allocate(problem_.residual_output_bytes()));
    RIDGELINE_ASSIGN_OR_RETURN(mask_, lane.Allocate(problem_.mask_bytes()));
    RIDGELINE_ASSIGN_OR_RETURN(workspace_, lane.Allocate(problem_.workspace_bytes(problem_.mode())));
    return absl::OkStatus();
  }

  absl::Status QueueKernels(Lane& lane, const device::CancelToken& cancel) {
    if (work_.use() == nullptr) return lane.Fuse(Params(), problem_.mode(), cancel);
    RIDGELINE_RETURN_IF_ERROR(tables_.QueueCopies(lane, *work_.use(), inputs_));
    return lane.Fuse(Params(), problem_.mode(), /*cancel=*/nullptr);
  }

  // Where the i-th of FuseProblem::sources lies; null if the request lacks it.
  const void* Input(std::size_t i) const { return problem_.sources()[i]->elements > 0 ? inputs_.data(sections_[i]) : nullptr; }

  FusedParams Params() const {
    FusedParams params = {.shape = problem_.shape,
                          .input = Input(0),
                          .other = Input(1),
                          .weight = Input(2),
                          .bias = Input(3),
                          .positions = static_cast<const std::int64_t*>(Input(4)),
                          .output = output_.data(),
                          .residual_output = residual_output_.data(),
                          .mask_output = static_cast<std::uint8_t*>(mask_.data()),
                          .workspace = workspace_.data()};
    if (work_.use() != nullptr) params.append = tables_.AppendParamsOf(*work_.use(), inputs_, Input(5), Input(6));
    return params;
  }

  absl::Status QueueDownload(Lane& lane) {
    if (problem_.discard) return absl::OkStatus();
    for (auto [buffer, host] : {std::pair(&output_, &host_output_), std::pair(&residual_output_, &host_residual_output_),
                                std::pair(&mask_, &host_mask_)}) {
      if (buffer->size_bytes() == 0) continue;
      RIDGELINE_ASSIGN_OR_RETURN(*host, lane.Download(std::move(*buffer)));
    }
    return absl::OkStatus();
  }

  void TakeOutputs(FuseResult& result) {
    if (problem_.discard) return;
    const kernels::fused::OpInfo& info = kernels::fused::InfoOf(problem_.shape.op);
    const auto add = [&](kernels::DataType type, std::shared_ptr<const HostBuffer>& data) {
      result.outputs.push_back({.data_type = type, .shape = problem_.output_shape, .data = std::move(data)});
    };
    if (problem_.shape.has_input) add(problem_.shape.data_type, host_output_);
    if (info.residual_output != kernels::fused::Use::kNone) add(problem_.shape.data_type, host_residual_output_);
    if (problem_.shape.has_mask) add(kernels::DataType::kUint8, host_mask_);
  }

  void FillReport(FuseResult& result) {
    const FuseSurroundings& surroundings = work_.surroundings();
    const kernels::fused::Mode mode = problem_.mode();
    const kernels::fused::Cost cost = kernels::fused::CountCost(problem_.shape, mode);
    result.kernel_count = cost.num_kernels;
    ExecutionReport& report = result.report;
    report.device = surroundings.device.name;
    report.kernel = absl::StrCat(kernels::fused::Name(problem_.shape.op), "_", Name(mode),
                                 surroundings.device.type == device::DeviceType::kCpu ? "_cpu" : "_cuda");
    report.kernel_reason =
        problem_.requested_mode.has_value() ? "the request asks for this mode" : "fused unless told otherwise";
    report.upload_time = uploaded_->Since(*begin_);
    report.kernel_time = computed_->Since(*uploaded_);
    report.download_time = downloaded_->Since(*computed_);
    report.flops = cost.flops;
    report.bytes = cost.bytes;
    report.workspace_bytes = problem_.workspace_bytes(mode);
    PlaceOnRoofline(surroundings.roofline, problem_.shape.data_type, report);
    surroundings.metrics.CountFuseKernel(problem_.shape.op, mode, report);
  }

  FuseWork& work_;
  const FuseProblem& problem_;
  LaunchInputs inputs_;
  PageTables tables_;
  std::vector<LaunchInputs::Section> sections_;  // of FuseProblem::sources
  Buffer output_, residual_output_, mask_, workspace_;
  std::shared_ptr<const HostBuffer> host_output_, host_residual_output_, host_mask_;
  std::unique_ptr<Event> begin_, uploaded_, computed_, downloaded_;
};

std::unique_ptr<Launch> FuseWork::MakeLaunch(absl::Span<Work* const> /*members*/) {
  return std::make_unique<FuseLaunch>(*this);
}

}  // namespace

std::unique_ptr<Work> MakeFuseWork(FuseProblem problem, FuseDone done, const FuseSurroundings& surroundings) {
  return std::make_unique<FuseWork>(std::move(problem), std::move(done), surroundings);
}

WorkTraits TraitsOf(const FuseProblem& problem, const CallContext& context) {
  const bool is_decode = problem.selection != nullptr && problem.longest_append_tokens <= kMaxDecodeTokens;
  return {.client = context.caller.client,
          .device_bytes = problem.device_bytes(problem.mode()),
          .deadline = context.deadline,
          .size = is_decode ? WorkSize::kDecode : WorkSize::kPrefill,
          .tokens = problem.selection != nullptr ? problem.shape.num_rows : 1,
          .accesses = problem.accesses};
}

}  // namespace ridgeline::engine
