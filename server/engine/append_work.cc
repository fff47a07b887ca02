#include "server/engine/append_work.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"
#include "server/engine/launch_inputs.h"
#include "server/engine/page_tables.h"

namespace ridgeline::engine {
namespace {

// The appends of several calls to one layer of one cache.
class AppendLaunch final : public Launch {
 public:
  explicit AppendLaunch(std::vector<AppendWork*> members) : members_(std::move(members)) {}

  absl::Status Queue(device::Lane& lane, const device::CancelToken& /*cancel*/) override {
    std::vector<const TensorSource*> keys, values;
    for (const AppendWork* member : members_) {
      tables_.Add(member->use());
      keys.push_back(&member->key());
      values.push_back(&member->value());
    }
    tables_.AddTo(inputs_);
    const LaunchInputs::Section key = inputs_.AddTensors(keys);
    const LaunchInputs::Section value = inputs_.AddTensors(values);
    RIDGELINE_RETURN_IF_ERROR(inputs_.Queue(lane));
    RIDGELINE_RETURN_IF_ERROR(
        tables_.QueueAppend(lane, members_.front()->use(), inputs_, inputs_.data(key), inputs_.data(value)));
    for (AppendWork* member : members_) member->DropInputs();
    return absl::OkStatus();
  }

  void Release(absl::Span<const absl::Status> outcomes) override {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (outcomes[i].ok()) {
        members_[i]->Succeed();
      } else {
        members_[i]->Fail();
      }
    }
  }

 private:
  const std::vector<AppendWork*> members_;
  PageTables tables_;
  LaunchInputs inputs_;
};

bool IsRandom(const TensorSource& tensor) { return std::holds_alternative<RandomFill>(tensor.storage); }

}  // namespace

AppendWork::AppendWork(AppendProblem problem, kv_cache::KvCacheStore& store, AppendKeyValueDone done)
    : problem_(std::move(problem)), store_(store), done_(std::move(done)) {}

absl::StatusOr<Turn> AppendWork::Begin(absl::Duration /*queue_time*/) {
  RIDGELINE_ASSIGN_OR_RETURN(use_, store_.Begin(*problem_.selection));
  return use_ != nullptr ? Turn::kGo : Turn::kNotNow;
}

std::unique_ptr<Launch> AppendWork::MakeLaunch(absl::Span<Work* const> members) {
  std::vector<AppendWork*> own;
  own.reserve(members.size());
  for (Work* member : members) own.push_back(static_cast<AppendWork*>(member));
  return std::make_unique<AppendLaunch>(std::move(own));
}

void AppendWork::DropInputs() {
  problem_.key.storage = {};
  problem_.value.storage = {};
}

void AppendWork::Succeed() {
  for (const kv_cache::UsedSequence& sequence : use_->sequences()) result_.lengths.push_back(sequence.end_tokens);
  use_->Commit();
  use_ = nullptr;
}

void AppendWork::Drop() {
  DropInputs();
  problem_.selection = nullptr;
}

void AppendWork::Finish(const absl::Status& status) {
  if (status.ok()) {
    done_(std::move(result_));
  } else {
    done_(status);
  }
}

WorkTraits TraitsOf(const AppendProblem& problem, const CallContext& context) {
  const kv_cache::SequenceSelection& selection = *problem.selection;
  std::int64_t longest = 0;
  std::int64_t total = 0;
  for (std::size_t row = 0; row < selection.size(); ++row) {
    longest = std::max(longest, selection.append_tokens(row));
    total += selection.append_tokens(row);
  }
  const bool shares = !IsRandom(problem.key) && !IsRandom(problem.value);
  return {.client = context.caller.client,
          .device_bytes = problem.key.size_bytes() + problem.value.size_bytes(),
          .deadline = context.deadline,
          .size = longest <= kMaxDecodeTokens ? WorkSize::kDecode : WorkSize::kPrefill,
          .tokens = total,
          .batch_key = shares ? absl::StrCat("append ", selection.cache_uid(), " ", selection.layer()) : "",
          .accesses = problem.accesses,
          .origin = context.origin,
          .operation = "AppendKeyValue"};
}

}  // namespace ridgeline::engine
