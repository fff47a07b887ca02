#include "server/engine/paged_attend_launch.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "kernels/attention/cascade/cascade.h"
#include "kernels/attention/cost.h"
#include "kernels/common/saturating.h"
#include "server/base/status_macros.h"
#include "server/engine/host_buffer_slice.h"
#include "server/engine/report.h"

namespace ridgeline::engine {
namespace {

using kernels::attention::AttentionPlan;
using kernels::attention::AttentionShape;
using kernels::attention::Sequence;
using kernels::attention::SharedPrefixes;

constexpr std::int64_t kLseAlignmentBytes = 512;  // as a Buffer's

std::int64_t RoundUp(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

// The page that the member's first sequence begins with; -1 if it has none that others could have too.
std::int32_t FirstPage(const PagedAttendWork& member) {
  const absl::Span<const kv_cache::UsedSequence> used = member.use().sequences();
  return used.empty() || used.front().table_head.empty() ? -1 : used.front().table_head.front();
}

std::vector<std::size_t> OrderOf(absl::Span<PagedAttendWork* const> members) {
  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return FirstPage(*members[i]); });
  return order;
}

}  // namespace

PagedAttendLaunch::PagedAttendLaunch(std::vector<PagedAttendWork*> members, const PagedSurroundings& surroundings)
    : members_(std::move(members)), order_(OrderOf(members_)), surroundings_(surroundings) {}

absl::Status PagedAttendLaunch::Queue(device::Lane& lane, const device::CancelToken& cancel) {
  Combine();
  RIDGELINE_ASSIGN_OR_RETURN(plan_, surroundings_.device.PlanAttention(shape_, sequences_, common().algorithm));
  RIDGELINE_RETURN_IF_ERROR(PlanCascade());
  RIDGELINE_ASSIGN_OR_RETURN(begin_, lane.Record());
  RIDGELINE_RETURN_IF_ERROR(QueueUpload(lane));
  RIDGELINE_ASSIGN_OR_RETURN(uploaded_, lane.Record());
  RIDGELINE_RETURN_IF_ERROR(
      tables_.QueueAppend(lane, members_.front()->use(), inputs_, inputs_.data(key_section_), inputs_.data(value_section_)));
  RIDGELINE_ASSIGN_OR_RETURN(phases_, lane.Attend(plan_, Params(), sequences_, cancel));
  RIDGELINE_ASSIGN_OR_RETURN(computed_, lane.Record());
  RIDGELINE_RETURN_IF_ERROR(QueueDownload(lane));
  RIDGELINE_ASSIGN_OR_RETURN(downloaded_, lane.Record());
  for (PagedAttendWork* member : members_) member->DropInputs();
  return absl::OkStatus();
}

void PagedAttendLaunch::Combine() {
  shape_ = common().shape;
  std::int64_t rows = 0;
  parts_.resize(members_.size());
  for (const std::size_t member_idx : order_) {
    const PagedAttendWork* const member = members_[member_idx];
    const AttendProblem& problem = member->problem();
    const absl::Span<const kv_cache::UsedSequence> used = member->use().sequences();
    Part& part = parts_[member_idx];
    part = {.first_sequence = static_cast<std::int64_t>(sequences_.size()),
            .num_sequences = static_cast<std::int64_t>(problem.sequences.size()),
            .output_begin_bytes = output_bytes_,
            .lse_begin_elems = rows * shape_.query_heads};
    tables_.Add(member->use());
    std::int64_t member_rows = 0;
    for (std::size_t i = 0; i < used.size(); ++i) {
      Sequence sequence = problem.sequences[i];
      member_rows += sequence.query_tokens;
      sequence.query_begin += rows;
      sequence.key_begin = tables_.table_begin(sequences_.size());
      sequence.key_tokens = used[i].end_tokens;
      sequence.lse_begin += part.lse_begin_elems;
      sequences_.push_back(sequence);
    }
    rows += member_rows;
    output_bytes_ += problem.output_bytes;
  }
  shape_.num_sequences = static_cast<std::int64_t>(sequences_.size());
  lse_elems_ = common().wants_log_sum_exp ? rows * shape_.query_heads : 0;
}

absl::Status PagedAttendLaunch::PlanCascade() {
  const bool has_alibi = common().alibi_slopes.has_value();
  if (plan_.decode.num_blocks == 0 || !kernels::attention::AllowsCascade(shape_, has_alibi)) return absl::OkStatus();
  SharedPrefixes prefixes = kernels::attention::FindSharedPrefixes(shape_, sequences_, tables_.block_table());
  if (!kernels::attention::CascadePays(shape_, prefixes)) return absl::OkStatus();
  pass_sequences_ = std::move(prefixes.sequences);
  const auto plan_of_pass = [&](int pass, absl::Span<const Sequence> sequences) {
    const AttentionShape pass_shape = kernels::attention::CascadePassShape(shape_, prefixes, pass);
    return surroundings_.device.PlanAttention(pass_shape, sequences, common().algorithm);
  };
  const auto sequences = absl::MakeConstSpan(pass_sequences_);
  RIDGELINE_ASSIGN_OR_RETURN(const AttentionPlan prefix_pass, plan_of_pass(0, sequences.first(prefixes.num_prefixes)));
  RIDGELINE_ASSIGN_OR_RETURN(const AttentionPlan tail_pass, plan_of_pass(1, sequences.subspan(prefixes.num_prefixes)));
  plan_ = kernels::attention::CombinePasses(shape_, prefixes, prefix_pass, tail_pass);
  return absl::OkStatus();
}

absl::Status PagedAttendLaunch::QueueUpload(device::Lane& lane) {
  const auto add = [this](TensorSource AttendProblem::*tensor) {
    std::vector<const TensorSource*> tensors;
    tensors.reserve(members_.size());
    for (const std::size_t i : order_) tensors.push_back(&(members_[i]->problem().*tensor));
    return inputs_.AddTensors(tensors);
  };
  const auto add_per_head = [this](const std::optional<TensorSource>& tensor) {
    return tensor.has_value() ? inputs_.AddTensors({&*tensor}) : LaunchInputs::Section();
  };
  sequences_section_ = inputs_.AddTable(sequences_);
  pass_sequences_section_ = inputs_.AddTable(pass_sequences_);
  tables_.AddTo(inputs_);
  query_section_ = add(&AttendProblem::query);
  key_section_ = add(&AttendProblem::key);
  value_section_ = add(&AttendProblem::value);
  alibi_section_ = add_per_head(common().alibi_slopes);
  sink_section_ = add_per_head(common().sink_logits);
  RIDGELINE_RETURN_IF_ERROR(inputs_.Queue(lane));
  lse_begin_bytes_ = RoundUp(output_bytes_, kLseAlignmentBytes);
  const std::int64_t lse_bytes = lse_elems_ * static_cast<std::int64_t>(sizeof(float));
  RIDGELINE_ASSIGN_OR_RETURN(results_, lane.Allocate(lse_bytes > 0 ? lse_begin_bytes_ + lse_bytes : output_bytes_));
  RIDGELINE_ASSIGN_OR_RETURN(workspace_, lane.Allocate(plan_.workspace_bytes));
  return absl::OkStatus();
}

kernels::attention::AttentionParams PagedAttendLaunch::Params() const {
  const AttendProblem& problem = common();
  const kv_cache::SequenceUse& use = members_.front()->use();
  const kernels::kv_cache::Pages pages = LayerPages(use);
  const auto per_head = [this](const std::optional<TensorSource>& tensor, LaunchInputs::Section section) {
    return tensor.has_value() ? static_cast<const float*>(inputs_.data(section)) : nullptr;
  };
  auto* const results = static_cast<std::byte*>(results_.data());
  return {.shape = shape_,
          .scale = problem.scale,
          .logit_soft_cap = problem.logit_soft_cap,
          .sequences = static_cast<const Sequence*>(inputs_.data(sequences_section_)),
          .query = inputs_.data(query_section_),
          .key = pages.key,
          .value = pages.value,
          .block_table = tables_.BlockTable(inputs_),
          .alibi_slopes = per_head(problem.alibi_slopes, alibi_section_),
          .sink_logits = per_head(problem.sink_logits, sink_section_),
          .output = results,
          .log_sum_exp = lse_elems_ > 0 ? reinterpret_cast<float*>(results + lse_begin_bytes_) : nullptr,
          .lse_head_stride_elems = problem.lse_head_stride_elems,
          .workspace = workspace_.data(),
          .pass_sequences =
              pass_sequences_.empty() ? nullptr : static_cast<const Sequence*>(inputs_.data(pass_sequences_section_))};
}

absl::Status PagedAttendLaunch::QueueDownload(device::Lane& lane) {
  if (common().discard || results_.size_bytes() == 0) return absl::OkStatus();
  RIDGELINE_ASSIGN_OR_RETURN(host_results_, lane.Download(std::move(results_)));
  return absl::OkStatus();
}

void PagedAttendLaunch::Release(absl::Span<const absl::Status> outcomes) {
  ExecutionReport launch;
  bool is_reported = false;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (!outcomes[i].ok()) {
      members_[i]->Fail();
      continue;
    }
    if (!std::exchange(is_reported, true)) launch = Report();
    members_[i]->Succeed(ResultOf(parts_[i], members_[i]->problem(), launch));
  }
}

kernels::attention::Cost PagedAttendLaunch::CostOf(std::int64_t first_sequence, std::int64_t num_sequences) const {
  kernels::attention::AttentionShape shape = shape_;
  shape.num_sequences = num_sequences;
  return kernels::attention::CountCost(shape, sequences_.data() + first_sequence, common().optional_tensors(), plan_.algorithm);
}

kernels::attention::Cost PagedAttendLaunch::WholeCost() const {
  kernels::attention::Cost cost = CostOf(0, shape_.num_sequences);
  if (plan_.cascade != nullptr) cost.bytes -= plan_.cascade->saved_bytes;
  return cost;
}

std::int64_t PagedAttendLaunch::ShareOf(std::int64_t member_bytes, const ExecutionReport& launch) const {
  if (plan_.cascade == nullptr) return member_bytes;
  const auto bytes_of_all = static_cast<double>(CostOf(0, shape_.num_sequences).bytes);
  return static_cast<std::int64_t>(static_cast<double>(member_bytes) / bytes_of_all * static_cast<double>(launch.bytes));
}

ExecutionReport PagedAttendLaunch::Report() const {
  const AttendSurroundings& surroundings = surroundings_.attend;
  const kernels::attention::Cost cost = WholeCost();
  ExecutionReport report;
  report.device = surroundings.device.name;
  report.kernel = plan_.kernel;
  report.kernel_reason = plan_.reason;
  report.algorithm = plan_.algorithm;
  report.batch_requests = static_cast<int>(members_.size());
  report.upload_time = uploaded_->Since(*begin_);
  report.kernel_time = computed_->Since(*uploaded_);
  report.download_time = downloaded_->Since(*computed_);
  report.flops = cost.flops;
  report.bytes = cost.bytes;
  report.workspace_bytes = plan_.workspace_bytes;
  const device::Event* phase_begin = uploaded_.get();
  for (const device::KernelPhase& phase : phases_) {
    report.kernel_phases.push_back({phase.name, phase.end->Since(*phase_begin)});
    phase_begin = phase.end.get();
  }
  PlaceOnRoofline(surroundings.roofline, shape_.data_type, report);
  surroundings.metrics.CountAttendKernel(plan_.algorithm, report);
  return report;
}

AttendResult PagedAttendLaunch::ResultOf(const Part& part, const AttendProblem& problem, const ExecutionReport& launch) const {
  AttendResult result;
  result.report = launch;
  const kernels::attention::Cost cost = CostOf(part.first_sequence, part.num_sequences);
  TakeShare(cost.flops, ShareOf(cost.bytes, launch), result.report);
  if (problem.discard) return result;
  const auto slice = [this](std::int64_t begin_bytes, std::int64_t size_bytes) -> std::shared_ptr<const device::HostBuffer> {
    if (size_bytes == 0) return nullptr;
    return std::make_shared<const HostBufferSlice>(host_results_, begin_bytes, size_bytes);
  };
  result.output = OutputTensor{.data_type = shape_.output_data_type,
                               .shape = problem.output_shape,
                               .data = slice(part.output_begin_bytes, problem.output_bytes)};
  if (!problem.wants_log_sum_exp) return result;
  const auto float_bytes = static_cast<std::int64_t>(sizeof(float));
  result.log_sum_exp =
      OutputTensor{.data_type = kernels::DataType::kFloat32,
                   .shape = problem.log_sum_exp_shape,
                   .data = slice(lse_begin_bytes_ + part.lse_begin_elems * float_bytes, problem.log_sum_exp_bytes)};
  return result;
}

}  // namespace ridgeline::engine
