// Attention over pages for the sequences of several calls in one kernel.
//
//   members          a: 2 sequences   b: 1         c: 1
//   query, output    [ a rows         │ b rows     │ c rows ]         one upload, one download
//   log_sum_exp      [ a's block      │ b's block  │ c's block ]      each as its call would have it alone
//   sequences        [ a0, a1,          b0,          c0 ]             their pages in one block table
//
// Members that begin with the same page are neighbours in the launch, so that forks can have what they share read once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "server/device/device.h"
#include "server/engine/attend_request.h"
#include "server/engine/launch_inputs.h"
#include "server/engine/page_tables.h"
#include "server/engine/paged_attend_work.h"
#include "server/engine/work.h"

namespace ridgeline::engine {

class PagedAttendLaunch final : public Launch {
 public:
  // Members have begun and have the same batch key, or there is one.
  PagedAttendLaunch(std::vector<PagedAttendWork*> members, const PagedSurroundings& surroundings);

  absl::Status Queue(device::Lane& lane, const device::CancelToken& cancel) override;
  void Release(absl::Span<const absl::Status> outcomes) override;

 private:
  // A member's place in what the launch has once.
  struct Part {
    std::int64_t first_sequence;
    std::int64_t num_sequences;
    std::int64_t output_begin_bytes;
    std::int64_t lse_begin_elems;
  };

  const AttendProblem& common() const { return members_.front()->problem(); }
  void Combine();
  // Sequences that begin with the same pages, e.g. forks, have them read once where that pays.
  absl::Status PlanCascade();
  absl::Status QueueUpload(device::Lane& lane);
  absl::Status QueueDownload(device::Lane& lane);
  kernels::attention::AttentionParams Params() const;
  // Of the sequences given, which have the launch's shape.
  kernels::attention::Cost CostOf(std::int64_t first_sequence, std::int64_t num_sequences) const;
  // Of all of them, with what they share counted once.
  kernels::attention::Cost WholeCost() const;
  // Of what the launch moved, the part of a member that would have moved so much by itself.
  std::int64_t ShareOf(std::int64_t member_bytes, const ExecutionReport& launch) const;
  // Of the launch as a whole.
  ExecutionReport Report() const;
  AttendResult ResultOf(const Part& part, const AttendProblem& problem, const ExecutionReport& launch) const;

  const std::vector<PagedAttendWork*> members_;
  const std::vector<std::size_t> order_;  // of members in the launch
  const PagedSurroundings surroundings_;

  kernels::attention::AttentionShape shape_;
  std::vector<kernels::attention::Sequence> sequences_;
  std::vector<Part> parts_;  // by member
  PageTables tables_;
  std::int64_t output_bytes_ = 0;
  std::int64_t lse_elems_ = 0;  // 0: nobody wants it
  std::int64_t lse_begin_bytes_ = 0;
  kernels::attention::AttentionPlan plan_;
  std::vector<kernels::attention::Sequence> pass_sequences_;  // of a plan with a cascade

  LaunchInputs inputs_;
  LaunchInputs::Section sequences_section_ = 0, pass_sequences_section_ = 0, query_section_ = 0, key_section_ = 0,
                        value_section_ = 0;
  LaunchInputs::Section alibi_section_ = 0, sink_section_ = 0;
  device::Buffer results_;  // output, then log_sum_exp
  device::Buffer workspace_;
  std::shared_ptr<const device::HostBuffer> host_results_;
  std::unique_ptr<device::Event> begin_, uploaded_, computed_, downloaded_;
  std::vector<device::KernelPhase> phases_;
};

}  // namespace ridgeline::engine
