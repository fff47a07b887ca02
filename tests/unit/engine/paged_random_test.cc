// Thousands of random steps through the engine against a plain model: answers, contents and page accounting after each; also
// with an evicting cache, and with device calls that fail.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "tests/support/attention_case.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/paged_fixture.h"

namespace ridgeline::engine {
namespace {

using kv_cache::EvictionPolicy;

constexpr std::int64_t kCapacityPages = 40;
constexpr int kLanes = 2;
constexpr char kInjected[] = "injected";

struct Plan {
  const char* name;
  int steps;
  EvictionPolicy policy;
  bool device_fails;
};

class PagedRandomTest : public PagedFixture, public ::testing::WithParamInterface<Plan> {
 protected:
  std::int64_t Below(std::int64_t end) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(end)); }
  bool OneIn(std::int64_t n) { return Below(n) == 0; }
  bool evicts() const { return GetParam().policy != EvictionPolicy::kNone; }

  std::string AnySequence() { return std::next(model_.sequences().begin(), Below(std::ssize(model_.sequences())))->first; }
  std::string NewId() { return absl::StrCat("s", num_ids_++); }

  PagedCall AnyCall(bool appends) {
    std::vector<std::string> names;
    const std::int64_t count = std::min<std::int64_t>(1 + Below(3), std::ssize(model_.sequences()));
    while (std::ssize(names) < count) {
      std::string name = AnySequence();
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
    }
    std::vector<std::int64_t> tokens;
    const bool is_prefill = OneIn(4);
    for (std::int64_t i = 0; i < count; ++i) tokens.push_back(is_prefill ? Below(20) : OneIn(5) ? Below(3) : 1);
    return MakeCall(random_, std::move(names), Below(kLayers), std::move(tokens), appends);
  }

  // ---- Steps.

  void Create() {
    if (std::ssize(model_.sequences()) < 12) MakeSequence(NewId());
  }

  void Delete() {
    const std::string name = AnySequence();
    ASSERT_OK(engine_->kv_caches().DeleteSequence({}, name));
    model_.sequences().erase(name);
  }

  void Fork() {
    if (std::ssize(model_.sequences()) >= 12) return;
    const std::string name = AnySequence(), id = NewId();
    ASSERT_OK(engine_->kv_caches().ForkSequence({}, name, id));
    model_.sequences()[NameOf("c", id)] = model_.sequence(name);
  }

  void Truncate() {
    const std::string name = AnySequence();
    const std::vector<std::int64_t> lengths = model_.sequence(name).lengths();
    const std::int64_t length = Below(*std::max_element(lengths.begin(), lengths.end()) + 1);
    ASSERT_OK(engine_->kv_caches().TruncateSequence({}, name, length));
    model_.Truncate(name, length);
  }

  void Append() {
    const PagedCall call = AnyCall(/*appends=*/true);
    AppendAnswer answer;
    engine_->AppendKeyValue(call.Append(), {.origin = {.request_id = "test"}}, answer.Callback());
    if (!answer.Wait().ok()) return ExpectMayFail(answer.Wait().status());
    model_.Append(call);
    for (std::size_t i = 0; i < call.sequences.size(); ++i) {
      EXPECT_EQ(answer.Wait()->lengths[i], model_.sequence(call.sequences[i]).lengths()[call.layer]);
    }
  }

  // Several calls at once, some for the same sequences; perhaps one is cancelled, at some moment.
  void Attend() {
    const bool shares_layer = OneIn(2);
    std::vector<PagedCall> calls;
    for (std::int64_t i = 0, count = 1 + Below(6); i < count; ++i) {
      calls.push_back(AnyCall(/*appends=*/!OneIn(3)));
      if (shares_layer) calls.back().layer = 0;
    }
    std::vector<Answer> answers(calls.size());
    std::vector<std::shared_ptr<Call>> handles;
    const bool collects = OneIn(2);
    for (int lane = 0; collects && lane < kLanes; ++lane) device_->HoldCompletions(lane);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      handles.push_back(
          Submit(calls[i], answers[i], {.origin = {.request_id = "test"}, .caller = {.client = absl::StrCat(Below(3))}}));
      if (OneIn(8) && handles.back() != nullptr) handles.back()->Cancel();
    }
    if (OneIn(2)) {
      if (const auto& any = handles[Below(std::ssize(handles))]; any != nullptr) any->Cancel();
    }
    for (int lane = 0; collects && lane < kLanes; ++lane) device_->ReleaseCompletions(lane);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const absl::StatusOr<AttendResult>& answer = answers[i].Wait();
      if (!answer.ok()) {
        if (!absl::IsCancelled(answer.status())) ExpectMayFail(answer.status());
        continue;
      }
      if (calls[i].appends) model_.Append(calls[i]);
      EXPECT_TRUE(model_.IsRight(calls[i], *answer)) << "call " << i << " of " << calls.size();
      largest_batch_ = std::max(largest_batch_, answer->report.batch_requests);
    }
  }

  void ExportAndImport() {
    const std::string name = AnySequence(), id = NewId();
    ASSERT_OK_AND_ASSIGN(const auto reader, engine_->ExportSequence({}, name));
    ASSERT_OK_AND_ASSIGN(const auto writer, engine_->ImportSequence({}, "kvCaches/c", id, reader->header()));
    while (true) {
      Awaited<absl::StatusOr<std::optional<OutgoingChunk>>> next;
      reader->Next({.origin = {.request_id = "test"}}, next.Callback());
      if (!next.Wait().ok()) return ExpectMayFail(next.Wait().status());
      if (!next.Wait()->has_value()) break;
      if (OneIn(10)) return;  // gives up
      Awaited<absl::Status> written;
      writer->Append(IncomingOf(**next.Wait()), {.origin = {.request_id = "test"}}, written.Callback());
      if (!written.Wait().ok()) return ExpectMayFail(written.Wait());
    }
    ASSERT_OK(writer->Commit());
    PagedModel::Sequence& copy = model_.sequences()[NameOf("c", id)];
    copy.layers = model_.sequence(name).layers;
    const std::vector<std::int64_t> lengths = copy.lengths();
    const std::int64_t tokens = *std::max_element(lengths.begin(), lengths.end());
    for (std::int64_t page = 0; page < (tokens + kPageTokens - 1) / kPageTokens; ++page) {
      copy.pages.push_back(std::make_shared<int>());
    }
  }

  void Step() {
    if (model_.sequences().empty()) return Create();
    switch (Below(12)) {
      case 0:
        return Create();
      case 1:
        return OneIn(2) ? Delete() : Truncate();
      case 2:
        return Fork();
      case 3:
        return Truncate();
      case 4:
      case 5:
        return Append();
      case 6:
        return ExportAndImport();
      default:
        return Attend();
    }
  }

  // ---- Checks.

  void ExpectMayFail(const absl::Status& status) {
    const bool was_injected = GetParam().device_fails && absl::StrContains(status.message(), kInjected);
    const std::string reason = base::ErrorReason(status);
    const bool is_full = reason == base::kReasonKvCacheFull;
    const bool was_evicted = evicts() && reason == base::kReasonSequenceEvicted;
    EXPECT_TRUE(was_injected || is_full || was_evicted) << status;
    ++num_failures_;
  }

  // What the cache has evicted goes from the model too.
  void ForgetEvicted() {
    if (!evicts()) return;
    std::erase_if(model_.sequences(), [&](const auto& entry) {
      const absl::Status status = engine_->kv_caches().GetSequence({}, entry.first).status();
      if (status.ok()) return false;
      EXPECT_EQ(base::ErrorReason(status), base::kReasonSequenceEvicted);
      return true;
    });
  }

  void Check() {
    AwaitIdle();
    ForgetEvicted();
    for (const auto& [name, sequence] : model_.sequences()) {
      ASSERT_OK_AND_ASSIGN(const kv_cache::SequenceInfo info, engine_->kv_caches().GetSequence({}, name));
      EXPECT_EQ(info.lengths, sequence.lengths()) << name;
      EXPECT_EQ(info.pages, std::ssize(sequence.pages)) << name;
    }
    EXPECT_EQ(used_pages(), model_.used_pages());
  }

  int num_ids_ = 0;
  int num_failures_ = 0;
  int largest_batch_ = 0;

 private:
  static IncomingChunk IncomingOf(const OutgoingChunk& chunk) {
    const auto incoming = [](const OutputTensor& tensor) {
      InlineData data;
      data.slices = {{tensor.data->data(), tensor.data->size_bytes()}};
      data.size_bytes = tensor.data->size_bytes();
      data.owner = tensor.data;
      return Tensor{.data_type = tensor.data_type, .shape = tensor.shape, .storage = std::move(data)};
    };
    return {.layer = chunk.layer, .token_begin = chunk.token_begin, .key = incoming(chunk.key), .value = incoming(chunk.value)};
  }
};

TEST_P(PagedRandomTest, AgreesWithThePlainModel) {
  random_.seed(support::DeriveSeed(GetParam().name));
  SCOPED_TRACE(absl::StrCat("RIDGELINE_TEST_SEED=", support::TestSeed()));
  BuildCache(kCapacityPages, kLanes, {.kv_cache = {.shared_caches = true}}, GetParam().policy);
  for (int step = 0; step < GetParam().steps && !HasFailure(); ++step) {
    SCOPED_TRACE(absl::StrCat("step ", step));
    if (GetParam().device_fails && OneIn(2)) device_->FailCall(Below(30), absl::InternalError(kInjected));
    Step();
    Check();
    if (!model_.sequences().empty() && OneIn(8)) {
      device_->FailCall(-1, absl::OkStatus());  // none
      const std::string name = AnySequence();
      EXPECT_TRUE(ExportsAs(*engine_, name, model_.sequence(name))) << name;
    }
  }
  EXPECT_GT(largest_batch_, 1) << "calls shared launches";
  EXPECT_GT(num_failures_, 0) << "something failed, and the model agreed";
  for (const auto& [name, sequence] : model_.sequences()) EXPECT_OK(engine_->kv_caches().DeleteSequence({}, name));
  EXPECT_EQ(used_pages(), 0) << "a page leaked";
  EXPECT_OK(engine_->kv_caches().DeleteCache({}, "kvCaches/c"));
  EXPECT_TRUE(AllMemoryReturns(*device_));
}

INSTANTIATE_TEST_SUITE_P(, PagedRandomTest,
                         ::testing::Values(Plan{"refuses", 2000, EvictionPolicy::kNone, false},
                                           Plan{"evicts", 2000, EvictionPolicy::kLeastRecentlyUsed, false},
                                           Plan{"fails", 2000, EvictionPolicy::kNone, true}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace ridgeline::engine
