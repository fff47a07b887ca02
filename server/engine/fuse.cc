#include "server/engine/fuse.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/casts.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/fused/op_info.h"
#include "server/base/status_macros.h"
#include "server/engine/host_buffer_slice.h"
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

// What the members compute, as one problem; their tensors stay with them.
FuseProblem Together(absl::Span<FuseWork* const> members) {
  const FuseProblem& first = members.front()->problem();
  FuseProblem whole;
  whole.shape = first.shape;
  whole.requested_mode = first.requested_mode;
  whole.discard = first.discard;
  whole.shape.num_rows = 0;
  for (const FuseWork* member : members) whole.shape.num_rows += member->problem().shape.num_rows;
  return whole;
}

// One call, or appends of several whose rows follow each other.
class FuseLaunch final : public Launch {
 public:
  explicit FuseLaunch(std::vector<FuseWork*> members) : members_(std::move(members)), whole_(Together(members_)) {}

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
    for (FuseWork* member : members_) member->DropInputs();
    return absl::OkStatus();
  }

  void Release(absl::Span<const absl::Status> outcomes) override {
    const bool any_ok = std::any_of(outcomes.begin(), outcomes.end(), [](const absl::Status& status) { return status.ok(); });
    const FuseResult launch = any_ok ? Report() : FuseResult();
    Offsets begins;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (outcomes[i].ok()) {
        members_[i]->Commit();
        FillResult(members_[i]->problem(), launch, begins, members_[i]->result());
      } else {
        members_[i]->Abort();
      }
      begins.Pass(members_[i]->problem());
    }
  }

 private:
  // Where a member's part of each output begins, in bytes.
  struct Offsets {
    std::int64_t output = 0, residual_output = 0, mask = 0;
    void Pass(const FuseProblem& member) {
      output += member.output_bytes();
      residual_output += member.residual_output_bytes();
      mask += member.mask_bytes();
    }
  };

  // Of one of those that append; null: none does.
  const kv_cache::SequenceUse* use() const { return members_.front()->use(); }

  void AddInputs() {
    for (const FuseWork* member : members_) {
      if (member->use() != nullptr) tables_.Add(*member->use());
    }
    if (use() != nullptr) tables_.AddTo(inputs_);
    const std::size_t num_sources = whole_.sources().size();
    for (std::size_t i = 0; i < num_sources; ++i) {
      std::vector<const TensorSource*> tensors;
      bool is_there = false;
      for (const FuseWork* member : members_) {
        tensors.push_back(member->problem().sources()[i]);
        is_there |= tensors.back()->elements > 0;
      }
      const LaunchInputs::Section section = inputs_.AddTensors(tensors);
      sections_.push_back(is_there ? std::optional(section) : std::nullopt);
    }
  }

  absl::Status AllocateOutputs(Lane& lane) {
    RIDGELINE_ASSIGN_OR_RETURN(output_, lane.Allocate(whole_.output_bytes()));
    RIDGELINE_ASSIGN_OR_RETURN(residual_output_, lane.Allocate(whole_.residual_output_bytes()));
    RIDGELINE_ASSIGN_OR_RETURN(mask_, lane.Allocate(whole_.mask_bytes()));
    RIDGELINE_ASSIGN_OR_RETURN(workspace_, lane.Allocate(whole_.workspace_bytes(whole_.mode())));
    return absl::OkStatus();
  }

  absl::Status QueueKernels(Lane& lane, const device::CancelToken& cancel) {
    if (use() == nullptr) return lane.Fuse(Params(), whole_.mode(), cancel);
    RIDGELINE_RETURN_IF_ERROR(tables_.QueueCopies(lane, *use(), inputs_));
    return lane.Fuse(Params(), whole_.mode(), /*cancel=*/nullptr);
  }

  // Where the i-th of FuseProblem::sources lies; null if the requests lack it.
  const void* Input(std::size_t i) const { return sections_[i].has_value() ? inputs_.data(*sections_[i]) : nullptr; }

  FusedParams Params() const {
    FusedParams params = {.shape = whole_.shape,
                          .input = Input(0),
                          .other = Input(1),
                          .weight = Input(2),
                          .bias = Input(3),
                          .positions = static_cast<const std::int64_t*>(Input(4)),
                          .output = output_.data(),
                          .residual_output = residual_output_.data(),
                          .mask_output = static_cast<std::uint8_t*>(mask_.data()),
                          .workspace = workspace_.data()};
    if (use() != nullptr) params.append = tables_.AppendParamsOf(*use(), inputs_, Input(5), Input(6));
    return params;
  }

  absl::Status QueueDownload(Lane& lane) {
    if (whole_.discard) return absl::OkStatus();
    for (auto [buffer, host] : {std::pair(&output_, &host_output_), std::pair(&residual_output_, &host_residual_output_),
                                std::pair(&mask_, &host_mask_)}) {
      if (buffer->size_bytes() == 0) continue;
      RIDGELINE_ASSIGN_OR_RETURN(*host, lane.Download(std::move(*buffer)));
    }
    return absl::OkStatus();
  }

  // The outputs that begin at `begins`, and the member's share of the launch's report.
  void FillResult(const FuseProblem& member, const FuseResult& launch, const Offsets& begins, FuseResult& result) const {
    const kernels::fused::Cost cost = kernels::fused::CountCost(member.shape, member.mode());
    const absl::Duration queue_time = result.report.queue_time;
    result.kernel_count = launch.kernel_count;
    result.report = launch.report;
    result.report.queue_time = queue_time;
    TakeShare(cost.flops, cost.bytes, result.report);
    if (member.discard) return;
    const kernels::fused::OpInfo& info = kernels::fused::InfoOf(member.shape.op);
    const auto add = [&](kernels::DataType type, const std::shared_ptr<const HostBuffer>& data, std::int64_t begin_bytes,
                         std::int64_t size_bytes) {
      std::shared_ptr<const HostBuffer> part;
      if (size_bytes > 0) part = std::make_shared<const HostBufferSlice>(data, begin_bytes, size_bytes);
      result.outputs.push_back({.data_type = type, .shape = member.output_shape, .data = std::move(part)});
    };
    if (member.shape.has_input) add(member.shape.data_type, host_output_, begins.output, member.output_bytes());
    if (info.residual_output != kernels::fused::Use::kNone) {
      add(member.shape.data_type, host_residual_output_, begins.residual_output, member.residual_output_bytes());
    }
    if (member.shape.has_mask) add(kernels::DataType::kUint8, host_mask_, begins.mask, member.mask_bytes());
  }

  // Of the launch as a whole, without outputs.
  FuseResult Report() const {
    const FuseSurroundings& surroundings = members_.front()->surroundings();
    const kernels::fused::Mode mode = whole_.mode();
    const kernels::fused::Cost cost = kernels::fused::CountCost(whole_.shape, mode);
    FuseResult result;
    result.kernel_count = cost.num_kernels;
    ExecutionReport& report = result.report;
    report.device = surroundings.device.name;
    report.kernel = absl::StrCat(kernels::fused::Name(whole_.shape.op), "_", Name(mode),
                                 surroundings.device.type == device::DeviceType::kCpu ? "_cpu" : "_cuda");
    report.kernel_reason = whole_.requested_mode.has_value() ? "the request asks for this mode" : "fused unless told otherwise";
    report.batch_requests = static_cast<int>(members_.size());
    report.upload_time = uploaded_->Since(*begin_);
    report.kernel_time = computed_->Since(*uploaded_);
    report.download_time = downloaded_->Since(*computed_);
    report.flops = cost.flops;
    report.bytes = cost.bytes;
    report.workspace_bytes = whole_.workspace_bytes(mode);
    PlaceOnRoofline(surroundings.roofline, whole_.shape.data_type, report);
    surroundings.metrics.CountFuseKernel(whole_.shape.op, mode, report);
    return result;
  }

  const std::vector<FuseWork*> members_;
  const FuseProblem whole_;
  LaunchInputs inputs_;
  PageTables tables_;
  std::vector<std::optional<LaunchInputs::Section>> sections_;  // of FuseProblem::sources; those that the requests have
  Buffer output_, residual_output_, mask_, workspace_;
  std::shared_ptr<const HostBuffer> host_output_, host_residual_output_, host_mask_;
  std::unique_ptr<Event> begin_, uploaded_, computed_, downloaded_;
};

std::unique_ptr<Launch> FuseWork::MakeLaunch(absl::Span<Work* const> members) {
  std::vector<FuseWork*> own;
  own.reserve(members.size());
  for (Work* member : members) own.push_back(static_cast<FuseWork*>(member));
  return std::make_unique<FuseLaunch>(std::move(own));
}

// What decides that two appends can share a launch: everything that a launch has once.
std::string BatchKey(const FuseProblem& problem) {
  if (problem.selection == nullptr) return "";
  for (const TensorSource* source : problem.sources()) {
    if (std::holds_alternative<RandomFill>(source->storage)) return "";
  }
  const kernels::fused::FusedShape& shape = problem.shape;
  return absl::StrCat(kernels::fused::Name(shape.op), " ", problem.selection->cache_uid(), " ", problem.selection->layer(), " ",
                      shape.has_input ? shape.row_elems : 0, " ", shape.has_positions, " ", static_cast<int>(shape.rope.layout),
                      " ", shape.rope.rotary_dim, " ", absl::Hex(absl::bit_cast<std::uint64_t>(shape.rope.base)), " ",
                      problem.discard, " ", problem.requested_mode.has_value() ? Name(*problem.requested_mode) : "any");
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
          .batch_key = BatchKey(problem),
          .accesses = problem.accesses,
          .origin = context.origin,
          .operation = "Fuse"};
}

}  // namespace ridgeline::engine
