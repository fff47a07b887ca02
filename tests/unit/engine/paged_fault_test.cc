// The n-th call of the device fails, for every n on the paths over pages: a clean error for all members of the launch, nothing
// that was stored has changed, no page leaks, and the same work succeeds afterwards.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/paged_fixture.h"

namespace ridgeline::engine {
namespace {

using kernels::attention::Algorithm;
using support::IsOk;
using support::StatusIs;

absl::Status Injected() { return absl::InternalError("injected"); }

class PagedFaultTest : public PagedFixture {
 protected:
  // A fork whose last page is shared, its origin, and one more.
  void SetUp() override {
    BuildCache();
    names_ = {MakeSequence("origin", 6), NameOf("c", "fork"), MakeSequence("other", 4)};
    ASSERT_OK(engine_->kv_caches().ForkSequence({}, names_[0], "fork"));
    model_.sequences()[names_[1]] = model_.sequence(names_[0]);
  }

  // Decode steps of all three sequences in one launch, whose n-th call of the device fails with `failure`.
  std::vector<PagedCall> Attend(Algorithm algorithm, std::optional<std::int64_t> n, const absl::Status& failure,
                                std::vector<Answer>& answers) {
    Answer occupant;
    Occupy(occupant);
    std::vector<PagedCall> steps;
    for (const std::string& name : names_) {
      steps.push_back(MakeCall(random_, {name}, 0, {1}, /*appends=*/true));
      steps.back().causal = steps.back().log_sum_exp = true;
      AttendRequest request = steps.back().Attend();
      request.options.algorithm = algorithm;
      engine_->Attend(std::move(request), {.origin = {.request_id = "test"}}, answers.emplace_back().Callback());
    }
    if (n.has_value()) device_->FailCall(*n, failure);
    device_->ReleaseCompletions(0);
    for (const Answer& answer : answers) answer.Wait();
    return steps;
  }

  void ExpectAsModelled() {
    AwaitIdle();
    for (const auto& [name, sequence] : model_.sequences()) EXPECT_TRUE(ExportsAs(*engine_, name, sequence)) << name;
    EXPECT_EQ(used_pages(), model_.used_pages());
  }

  std::vector<std::string> names_;
};

class PagedAttendFaultTest : public PagedFaultTest, public ::testing::WithParamInterface<Algorithm> {};

TEST_P(PagedAttendFaultTest, EveryCallMayFail) {
  const std::int64_t pages_before = used_pages();
  for (std::int64_t n = 0;; ++n) {
    SCOPED_TRACE(n);
    std::vector<Answer> answers;
    const std::vector<PagedCall> steps = Attend(GetParam(), n, Injected(), answers);
    if (answers[0].Wait().ok()) {  // no call of the launch was the n-th
      ASSERT_GE(n, 8);
      for (std::size_t i = 0; i < steps.size(); ++i) {
        ASSERT_THAT(answers[i].Wait(), IsOk());
        EXPECT_EQ(answers[i].Wait()->report.batch_requests, 3);
        model_.Append(steps[i]);
        EXPECT_TRUE(model_.IsRight(steps[i], *answers[i].Wait()));
      }
      break;
    }
    for (const Answer& answer : answers) {
      EXPECT_THAT(answer.Wait(), StatusIs(absl::StatusCode::kInternal, ::testing::HasSubstr("injected")));
    }
    EXPECT_EQ(used_pages(), pages_before);
    ExpectAsModelled();
  }
  device_->FailCall(-1, absl::OkStatus());  // none any more
  ExpectAsModelled();
}

TEST_P(PagedAttendFaultTest, WhenMemoryRunsOutEachStepsAlone) {
  for (const std::int64_t n : {1, 2, 5, 6}) {  // while the launch is being queued
    SCOPED_TRACE(n);
    std::vector<Answer> answers;
    const std::vector<PagedCall> steps =
        Attend(GetParam(), n, base::WithReason(absl::ResourceExhaustedError("injected"), base::kReasonOutOfMemory), answers);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      ASSERT_THAT(answers[i].Wait(), IsOk());
      EXPECT_EQ(answers[i].Wait()->report.batch_requests, 1);
      model_.Append(steps[i]);
      EXPECT_TRUE(model_.IsRight(steps[i], *answers[i].Wait()));
    }
    ExpectAsModelled();
  }
}

INSTANTIATE_TEST_SUITE_P(, PagedAttendFaultTest, ::testing::Values(Algorithm::kStandard, Algorithm::kFlash),
                         [](const auto& instance) { return Name(instance.param); });

TEST_F(PagedFaultTest, EveryCallOfAnAppendMayFail) {
  bool failed = true;
  for (std::int64_t n = 0; failed; ++n) {
    SCOPED_TRACE(n);
    const PagedCall call = MakeCall(random_, names_, 0, {3, 1, 6}, /*appends=*/true);
    AppendAnswer answer;
    device_->FailCall(n, Injected());
    engine_->AppendKeyValue(call.Append(), {.origin = {.request_id = "test"}}, answer.Callback());
    failed = !answer.Wait().ok();
    if (!failed) {
      EXPECT_GE(n, 3);
      model_.Append(call);
      device_->FailCall(-1, absl::OkStatus());
    }
    ExpectAsModelled();
  }
}

TEST_F(PagedFaultTest, EveryCallOfAnExportMayFailAndTheChunkComesAgain) {
  ASSERT_OK_AND_ASSIGN(const auto reader, engine_->ExportSequence({}, names_[0]));
  bool failed = true;
  for (std::int64_t n = 0; failed; ++n) {
    SCOPED_TRACE(n);
    Awaited<absl::StatusOr<std::optional<OutgoingChunk>>> next;
    device_->FailCall(n, Injected());
    reader->Next({.origin = {.request_id = "test"}}, next.Callback());
    failed = !next.Wait().ok();
    if (failed) continue;
    EXPECT_GE(n, 4);
    ASSERT_TRUE(next.Wait()->has_value());
    EXPECT_EQ((*next.Wait())->token_begin, 0);
    EXPECT_EQ((*next.Wait())->key.shape[0], 6);
  }
  device_->FailCall(-1, absl::OkStatus());
  ExpectAsModelled();
}

TEST_F(PagedFaultTest, EveryCallOfAnImportMayFailAndTheChunkIsSentAgain) {
  const SequenceHeader header{.layers = kLayers,
                              .kv_heads = kKvHeads,
                              .head_dim = kHeadDim,
                              .value_head_dim = kValueHeadDim,
                              .data_type = kernels::DataType::kFloat32,
                              .lengths = {6, 0}};
  const std::int64_t pages_before = used_pages();
  ASSERT_OK_AND_ASSIGN(auto writer, engine_->ImportSequence({}, "kvCaches/c", "copy", header));
  bool failed = true;
  for (std::int64_t n = 0; failed; ++n) {
    SCOPED_TRACE(n);
    Awaited<absl::Status> written;
    device_->FailCall(n, Injected());
    writer->Append({.layer = 0,
                    .token_begin = 0,
                    .key = RandomTensor({6, kKvHeads, kHeadDim}, 1),
                    .value = RandomTensor({6, kKvHeads, kValueHeadDim}, 2)},
                   {.origin = {.request_id = "test"}}, written.Callback());
    failed = !written.Wait().ok();
    if (failed) {
      EXPECT_THAT(written.Wait(), StatusIs(absl::StatusCode::kInternal));
    } else {
      EXPECT_GE(n, 3);
    }
  }
  device_->FailCall(-1, absl::OkStatus());
  EXPECT_THAT(writer->Commit(), IsOk());
  ASSERT_OK(engine_->kv_caches().DeleteSequence({}, NameOf("c", "copy")));
  EXPECT_EQ(used_pages(), pages_before);
  ExpectAsModelled();
}

TEST_F(PagedFaultTest, ACacheWhoseArenaIsNotToBeHadLeavesNoTrace) {
  const std::int64_t bytes_before = device_->memory_stats().allocated_bytes;
  const auto create = [&] {
    Awaited<absl::StatusOr<kv_cache::CacheInfo>> made;
    engine_->CreateKvCache(CacheRequest("more", 4), {.origin = {.request_id = "test"}}, made.Callback());
    return made.Wait().status();
  };
  device_->FailCall(0, Injected());
  EXPECT_THAT(create(), StatusIs(absl::StatusCode::kInternal, ::testing::HasSubstr("injected")));
  EXPECT_EQ(device_->memory_stats().allocated_bytes, bytes_before);
  EXPECT_THAT(create(), IsOk());
  ASSERT_OK(engine_->kv_caches().DeleteCache({}, "kvCaches/more"));
  EXPECT_EQ(device_->memory_stats().allocated_bytes, bytes_before);
  ExpectAsModelled();
}

}  // namespace
}  // namespace ridgeline::engine
