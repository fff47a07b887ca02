// Thousands of random steps on a cache and on the plain model of one, compared after each.

#include <cstdint>
#include <map>
#include <random>
#include <utility>

#include "gmock/gmock.h"
#include "server/base/error.h"
#include "tests/unit/engine/kv_cache/cache_model.h"
#include "tests/unit/engine/kv_cache/store_fixture.h"

namespace ridgeline::engine::kv_cache {
namespace {

using Outcome = CacheModel::Outcome;

constexpr int kSteps = 1500;
constexpr int kIds = 12;
constexpr std::size_t kMostUses = 5;
constexpr std::size_t kMostTransfers = 3;

// A selection or a use of the store beside the model's.
struct Running {
  CacheModel::Use model;
  std::shared_ptr<const SequenceSelection> selection;
  std::unique_ptr<SequenceUse> use;
};

struct RunningTransfer {
  CacheModel::SequencePtr model;
  std::shared_ptr<const Transfer> transfer;
  bool is_import = false;
};

class ModelTest : public StoreFixture, public ::testing::WithParamInterface<int> {
 protected:
  ModelTest() : random_(std::random_device()()) {}

  // Drawn from the seed: capacity, page size, policy, quota.
  void Start() {
    layers_ = 1 + Draw(3);
    page_tokens_ = 1 + Draw(5);
    capacity_pages_ = 4 + Draw(40);
    policy_ = Draw(2) == 0 ? EvictionPolicy::kNone : EvictionPolicy::kLeastRecentlyUsed;
    const std::int64_t quota = Draw(3) == 0 ? 3 + Draw(capacity_pages_) : std::int64_t{1} << 40;
    Build({.shared_caches = true, .max_pages_per_client = quota});
    GeometryRequest geometry = SmallGeometry(capacity_pages_);
    geometry.layers = layers_;
    geometry.page_tokens = page_tokens_;
    ASSERT_OK(store_->CreateCache(alice_, {.cache_id = "c", .geometry = geometry, .eviction_policy = policy_}));
    model_ = std::make_unique<CacheModel>(layers_, page_tokens_, capacity_pages_, quota, policy_);
  }

  // [0, bound)
  std::int64_t Draw(std::int64_t bound) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(bound)); }
  std::string DrawId() { return absl::StrCat("s", Draw(kIds)); }
  const Caller& DrawCaller() { return Draw(2) == 0 ? alice_ : bob_; }
  Tokens DrawTokens() { return Range(next_token_ += 1000, Draw(4) == 0 ? Draw(4 * page_tokens_) : Draw(3)); }

  void Step() {
    switch (Draw(16)) {
      case 0:
      case 1:
        return CreateOne();
      case 2:
        return ForkOne();
      case 3:
        return DeleteOne();
      case 4:
      case 5:
        return TruncateOne();
      case 6:
        return BeginTransfer();
      case 7:
        return EndTransfer();
      case 8:
      case 9:
      case 10:
        return EndOne();
      default:
        return SelectOrBegin();
    }
  }

  // ---- Steps ----------------------------------------------------------------------------------------------------------------

  bool IsTaken(const std::string& id) const {
    return std::any_of(model_->by_use().begin(), model_->by_use().end(), [&](const auto& other) { return other->id == id; });
  }

  void CreateOne() {
    const std::string id = DrawId();
    const Caller& caller = DrawCaller();
    const auto created = store_->CreateSequence(caller, "kvCaches/c", id);
    ASSERT_EQ(base::ErrorReason(created.status()), IsTaken(id) ? base::kReasonSequenceExists : "");
    if (created.ok()) Remember(model_->Add(id, caller.client, /*hidden=*/false, nullptr));
  }

  void ForkOne() {
    const std::string from = DrawId();
    const std::string to = DrawId();
    const Caller& caller = DrawCaller();
    const auto forked = store_->ForkSequence(caller, NameOf(from), to);
    const auto origin = model_->Find(from);
    if (origin == nullptr) return CheckNotFound(forked.status(), from);
    ASSERT_EQ(base::ErrorReason(forked.status()), IsTaken(to) ? base::kReasonSequenceExists : "");
    if (forked.ok()) Remember(model_->Add(to, caller.client, /*hidden=*/false, origin.get()));
  }

  void DeleteOne() {
    const std::string id = DrawId();
    const absl::Status deleted = store_->DeleteSequence(alice_, NameOf(id));
    const auto sequence = model_->Find(id);
    if (sequence == nullptr) return CheckNotFound(deleted, id);
    ASSERT_EQ(base::ErrorReason(deleted), sequence->IsBusy() ? base::kReasonSequenceBusy : "");
    if (deleted.ok()) model_->Delete(sequence);
  }

  void TruncateOne() {
    const std::string id = DrawId();
    const std::int64_t length = Draw(6 * page_tokens_);
    const auto truncated = store_->TruncateSequence(alice_, NameOf(id), length);
    const auto sequence = model_->Find(id);
    if (sequence == nullptr) return CheckNotFound(truncated.status(), id);
    std::int64_t longest = 0;
    for (const Tokens& tokens : sequence->layers) longest = std::max<std::int64_t>(longest, tokens.size());
    if (sequence->IsBusy()) {
      ASSERT_EQ(base::ErrorReason(truncated.status()), base::kReasonSequenceBusy);
    } else if (length > longest) {
      ASSERT_EQ(base::ErrorField(truncated.status()), "length");
    } else {
      ASSERT_OK(truncated);
      model_->Truncate(*sequence, length);
      model_->Touch(sequence);
    }
  }

  // Names up to three sequences; most selections begin at once, others later, when much may have happened.
  void SelectOrBegin() {
    if (!waiting_.empty() && Draw(3) == 0) return BeginWaiting();
    if (running_.size() + waiting_.size() >= kMostUses) return EndOne();
    Running running;
    running.model.layer = Draw(layers_);
    SelectRequest request = {.layer = running.model.layer};
    const bool appends = Draw(3) != 0;
    for (std::int64_t row = 1 + Draw(3); row > 0; --row) {
      const std::string id = DrawId();
      if (std::find(request.sequences.begin(), request.sequences.end(), NameOf(id)) != request.sequences.end()) continue;
      request.sequences.push_back(NameOf(id));
      running.model.rows.push_back({.sequence = model_->Find(id), .appended = appends ? DrawTokens() : Tokens(), .tail = {}});
      if (appends) request.append_tokens.push_back(static_cast<std::int64_t>(running.model.rows.back().appended.size()));
    }
    const auto selection = store_->Select(alice_, request);
    for (std::size_t row = 0; row < request.sequences.size(); ++row) {
      if (running.model.rows[row].sequence != nullptr) continue;
      return CheckNotFound(selection.status(), request.sequences[row].substr(NameOf("").size()));
    }
    ASSERT_OK(selection);
    running.selection = *selection;
    for (const auto& row : running.model.rows) model_->Touch(row.sequence);
    waiting_.push_back(std::move(running));
    if (Draw(4) != 0) BeginWaiting();
  }

  void BeginWaiting() {
    Running running = std::move(waiting_.back());
    waiting_.pop_back();
    Begin(running);
  }

  void Begin(Running& running) {
    const bool gone = std::any_of(running.model.rows.begin(), running.model.rows.end(),
                                  [](const auto& row) { return row.sequence->deleted; });
    auto use = store_->Begin(*running.selection);
    const Outcome outcome = model_->Begin(running.model);
    ASSERT_EQ(outcome == Outcome::kNotFound, gone);
    ++outcomes_[outcome];
    switch (outcome) {
      case Outcome::kNotFound:
        ASSERT_THAT(use, support::StatusIs(absl::StatusCode::kNotFound));
        return;
      case Outcome::kFull:
        ASSERT_EQ(base::ErrorReason(use.status()), base::kReasonKvCacheFull) << use.status();
        return;
      case Outcome::kQuota:
        ASSERT_EQ(base::ErrorReason(use.status()), base::kReasonQuotaExceeded) << use.status();
        return;
      case Outcome::kMustWait:
        ASSERT_OK(use);
        ASSERT_EQ(*use, nullptr);
        return;
      case Outcome::kBegun:
        break;
    }
    ASSERT_OK(use);
    ASSERT_NE(*use, nullptr);
    running.use = *std::move(use);
    CopyPages(*running.use);
    for (std::size_t row = 0; row < running.model.rows.size(); ++row) {
      WriteTokens(*running.use, row, running.model.rows[row].appended);
      Tokens expected = running.model.rows[row].sequence->layers[running.model.layer];
      expected.insert(expected.end(), running.model.rows[row].appended.begin(), running.model.rows[row].appended.end());
      ASSERT_EQ(ReadTokens(*running.use, row), expected);
      if (!running.model.rows[row].sequence->deleted) model_->Touch(running.model.rows[row].sequence);
    }
    running_.push_back(std::move(running));
  }

  void EndOne() {
    if (running_.empty()) return;
    std::swap(running_[Draw(running_.size())], running_.back());
    Running running = std::move(running_.back());
    running_.pop_back();
    const bool commit = Draw(3) != 0;
    commit ? running.use->Commit() : running.use->Abort();
    model_->End(running.model, commit);
  }

  void BeginTransfer() {
    if (transfers_.size() >= kMostTransfers) return EndTransfer();
    const std::string id = DrawId();
    if (Draw(2) == 0) {
      const auto transfer = store_->BeginImport(bob_, "kvCaches/c", id);
      ASSERT_EQ(base::ErrorReason(transfer.status()), IsTaken(id) ? base::kReasonSequenceExists : "");
      if (transfer.ok()) transfers_.push_back({model_->Add(id, "bob", /*hidden=*/true, nullptr), *transfer, true});
      return;
    }
    const auto transfer = store_->BeginExport(bob_, NameOf(id));
    const auto origin = model_->Find(id);
    if (origin == nullptr) return CheckNotFound(transfer.status(), id);
    ASSERT_OK(transfer);
    transfers_.push_back({model_->Add("export", "bob", /*hidden=*/true, origin.get()), *transfer, false});
  }

  // Imports get some tokens, exports are read; then they end, now and then while work still runs on them.
  void EndTransfer() {
    if (transfers_.empty()) return;
    std::swap(transfers_[Draw(transfers_.size())], transfers_.back());
    RunningTransfer& transfer = transfers_.back();
    Running running;
    running.model.layer = Draw(layers_);
    running.model.rows.push_back({.sequence = transfer.model, .appended = {}, .tail = {}});
    if (transfer.is_import) running.model.rows[0].appended = DrawTokens();
    running.selection = store_->SelectTransfer(*transfer.transfer, running.model.layer,
                                               static_cast<std::int64_t>(running.model.rows[0].appended.size()));
    model_->Touch(transfer.model);
    Begin(running);
    if (Draw(2) == 0) return;
    if (transfer.is_import && !transfer.model->IsBusy() && Draw(2) == 0) {
      store_->Publish(*transfer.transfer);
      transfer.model->hidden = false;
      Remember(transfer.model);
    } else {
      model_->Delete(transfer.model);
    }
    transfers_.pop_back();
  }

  // ---- Checks ---------------------------------------------------------------------------------------------------------------

  void Remember(const CacheModel::SequencePtr& sequence) { last_[sequence->id] = sequence; }

  void CheckNotFound(const absl::Status& status, const std::string& id) {
    const auto last = last_.find(id);
    const bool evicted = last != last_.end() && last->second->evicted;
    ASSERT_EQ(base::ErrorReason(status), evicted ? base::kReasonSequenceEvicted : base::kReasonSequenceNotFound) << status;
  }

  void CheckPages() {
    const KvCacheStatistics statistics = store_->statistics();
    ASSERT_EQ(statistics.used_pages, model_->num_used());
    ASSERT_EQ(statistics.free_pages, capacity_pages_ - model_->num_used());
    ASSERT_EQ(statistics.evicted_sequences, model_->num_evicted());
  }

  // In the order of use, which reading thus leaves as it is.
  void CheckContents() {
    const std::list<CacheModel::SequencePtr> sequences = model_->by_use();
    for (const CacheModel::SequencePtr& sequence : sequences) {
      model_->Touch(sequence);
      const auto transfer = std::find_if(transfers_.begin(), transfers_.end(),
                                         [&](const RunningTransfer& running) { return running.model == sequence; });
      for (std::int64_t layer = 0; layer < layers_; ++layer) {
        const auto selection =
            sequence->hidden ? store_->SelectTransfer(*transfer->transfer, layer, 0) : *Select({sequence->id}, layer);
        ASSERT_EQ(selection->expected_tokens(0), static_cast<std::int64_t>(sequence->layers[layer].size()));
        const auto use = store_->Begin(*selection);
        ASSERT_OK(use);
        ASSERT_EQ(*use == nullptr, sequence->written);
        if (*use == nullptr) continue;
        ASSERT_EQ(ReadTokens(**use, 0), sequence->layers[layer]) << sequence->id << " layer " << layer;
      }
      if (sequence->hidden) continue;
      const SequenceInfo info = Info(sequence->id);
      ASSERT_EQ(info.pages, static_cast<std::int64_t>(sequence->table.size()));
      ASSERT_EQ(info.owner, sequence->owner);
    }
  }

  void EndAll() {
    while (!running_.empty()) EndOne();
    waiting_.clear();
    while (!transfers_.empty()) {
      model_->Delete(transfers_.back().model);
      transfers_.pop_back();
    }
  }

  std::mt19937_64 random_;
  std::int64_t layers_ = 0;
  std::int64_t page_tokens_ = 0;
  std::int64_t capacity_pages_ = 0;
  EvictionPolicy policy_ = EvictionPolicy::kNone;
  std::int64_t next_token_ = 0;
  std::unique_ptr<CacheModel> model_;
  std::map<std::string, CacheModel::SequencePtr> last_;  // the last that had the id
  std::vector<Running> waiting_;
  std::vector<Running> running_;
  std::vector<RunningTransfer> transfers_;
  std::map<Outcome, int> outcomes_;
};

TEST_P(ModelTest, StoreAndModelAgreeAfterEveryStep) {
  const std::uint64_t seed = std::random_device()() * std::uint64_t{1000} + GetParam();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  random_.seed(seed);
  Start();
  for (int step = 0; step < kSteps && !HasFatalFailure(); ++step) {
    SCOPED_TRACE(absl::StrCat("step ", step));
    Step();
    if (!HasFatalFailure()) CheckPages();
    if (!HasFatalFailure() && step % 8 == 0) CheckContents();
  }
  if (HasFatalFailure()) return;
  EndAll();
  CheckContents();
  CheckPages();
  EXPECT_GT(outcomes_[Outcome::kBegun], kSteps / 20);
  while (!model_->by_use().empty()) {
    const CacheModel::SequencePtr sequence = model_->by_use().front();
    ASSERT_OK(store_->DeleteSequence(alice_, NameOf(sequence->id)));
    model_->Delete(sequence);
  }
  EXPECT_EQ(UsedPages(), 0);
  EXPECT_OK(store_->DeleteCache(alice_, "kvCaches/c"));
  EXPECT_EQ(store_->statistics().clients, 0);
  EXPECT_EQ(arenas_.num_live(), 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ModelTest, ::testing::Range(0, 40));

}  // namespace
}  // namespace ridgeline::engine::kv_cache
