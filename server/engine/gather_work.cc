#include "server/engine/gather_work.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/kv_cache/kv_cache.h"
#include "server/base/status_macros.h"
#include "server/engine/host_buffer_slice.h"
#include "server/engine/launch_inputs.h"
#include "server/engine/page_tables.h"

namespace ridgeline::engine {
namespace {

using kernels::kv_cache::Pages;
using kernels::kv_cache::TokenSpan;

constexpr std::int64_t kValueAlignmentBytes = 512;  // as a Buffer's

class GatherLaunch final : public Launch {
 public:
  explicit GatherLaunch(GatherWork& work) : work_(work) {}

  absl::Status Queue(device::Lane& lane, const device::CancelToken& /*cancel*/) override {
    const Pages pages = LayerPages(work_.use());
    AddPages(pages.page_tokens);
    const LaunchInputs::Section spans = inputs_.AddTable(spans_);
    const LaunchInputs::Section block_table = inputs_.AddTable(block_table_);
    RIDGELINE_RETURN_IF_ERROR(inputs_.Queue(lane));

    const std::int64_t tokens = work_.problem().tokens;
    key_bytes_ = tokens * pages.KeyRowBytes();
    value_bytes_ = tokens * pages.ValueRowBytes();
    value_begin_bytes_ = (key_bytes_ + kValueAlignmentBytes - 1) / kValueAlignmentBytes * kValueAlignmentBytes;
    RIDGELINE_ASSIGN_OR_RETURN(device::Buffer rows, lane.Allocate(value_begin_bytes_ + value_bytes_));
    RIDGELINE_RETURN_IF_ERROR(
        lane.GatherKeyValue({.from = {.pages = pages,
                                      .block_table = static_cast<const std::int32_t*>(inputs_.data(block_table)),
                                      .spans = static_cast<const TokenSpan*>(inputs_.data(spans)),
                                      .num_spans = 1,
                                      .num_rows = tokens},
                             .key = rows.data(),
                             .value = static_cast<std::byte*>(rows.data()) + value_begin_bytes_}));
    RIDGELINE_ASSIGN_OR_RETURN(host_rows_, lane.Download(std::move(rows)));
    return absl::OkStatus();
  }

  void Release(absl::Span<const absl::Status> outcomes) override {
    if (!outcomes.front().ok()) return work_.Fail();
    const kv_cache::Geometry& geometry = work_.use().geometry();
    const std::int64_t tokens = work_.problem().tokens;
    work_.Succeed({.layer = work_.use().layer(),
                   .token_begin = work_.problem().token_begin,
                   .key = {.data_type = geometry.data_type,
                           .shape = {tokens, geometry.kv_heads, geometry.head_dim},
                           .data = std::make_shared<const HostBufferSlice>(host_rows_, 0, key_bytes_)},
                   .value = {.data_type = geometry.data_type,
                             .shape = {tokens, geometry.kv_heads, geometry.value_head_dim},
                             .data = std::make_shared<const HostBufferSlice>(host_rows_, value_begin_bytes_, value_bytes_)}});
  }

 private:
  // The pages of the chunk alone: the first of them is entry 0.
  void AddPages(std::int64_t page_tokens) {
    const GatherProblem& problem = work_.problem();
    const kv_cache::UsedSequence& sequence = work_.use().sequences().front();
    const std::int64_t first_page = problem.token_begin / page_tokens;
    const std::int64_t end_page = (problem.token_begin + problem.tokens - 1) / page_tokens + 1;
    const auto pages = sequence.table_head.subspan(first_page, end_page - first_page);
    block_table_.assign(pages.begin(), pages.end());
    spans_ = {{.row_begin = 0,
               .num_tokens = problem.tokens,
               .table_begin = 0,
               .token_begin = problem.token_begin - first_page * page_tokens}};
  }

  GatherWork& work_;
  std::vector<TokenSpan> spans_;
  std::vector<std::int32_t> block_table_;
  LaunchInputs inputs_;
  std::int64_t key_bytes_ = 0;
  std::int64_t value_bytes_ = 0;
  std::int64_t value_begin_bytes_ = 0;
  std::shared_ptr<const device::HostBuffer> host_rows_;
};

}  // namespace

GatherWork::GatherWork(GatherProblem problem, kv_cache::KvCacheStore& store, Done done)
    : problem_(std::move(problem)), store_(store), done_(std::move(done)) {}

absl::StatusOr<Turn> GatherWork::Begin(absl::Duration /*queue_time*/) {
  RIDGELINE_ASSIGN_OR_RETURN(use_, store_.Begin(*problem_.selection));
  return use_ != nullptr ? Turn::kGo : Turn::kNotNow;
}

std::unique_ptr<Launch> GatherWork::MakeLaunch(absl::Span<Work* const> /*members*/) {
  return std::make_unique<GatherLaunch>(*this);
}

void GatherWork::Succeed(OutgoingChunk chunk) {
  use_ = nullptr;  // a reader has nothing to commit
  result_ = std::move(chunk);
}

void GatherWork::Finish(const absl::Status& status) {
  if (status.ok()) {
    done_(std::move(result_));
  } else {
    done_(status);
  }
}

}  // namespace ridgeline::engine
