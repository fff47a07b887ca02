// Attention over the pages of a KV cache: right answers alone and in a batch, appended rows all or none, errors that change
// nothing.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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
using ::testing::HasSubstr;

class PagedAttendTest : public PagedFixture {
 protected:
  // So many decode steps, each of a sequence of its own, of lengths around those of pages.
  std::vector<PagedCall> MakeSteps(int num_steps) {
    std::vector<PagedCall> steps;
    for (int i = 0; i < num_steps; ++i) {
      const std::string name = MakeSequence(absl::StrCat("s", i), /*tokens=*/3 * i);
      steps.push_back(MakeCall(random_, {name}, /*layer=*/0, {1}, /*appends=*/true));
      steps.back().causal = steps.back().log_sum_exp = true;
    }
    return steps;
  }

  // Everything is as the model says.
  void ExpectNothingElseChanged() {
    AwaitIdle();
    for (const auto& [name, sequence] : model_.sequences()) EXPECT_TRUE(ExportsAs(*engine_, name, sequence)) << name;
    EXPECT_EQ(used_pages(), model_.used_pages());
  }
};

TEST_F(PagedAttendTest, AppendsAndSeesWhatItAppended) {
  BuildCache();
  const std::vector<std::string> names = {MakeSequence("a", 5), MakeSequence("b"), MakeSequence("c", 8)};
  const PagedCall call = MakeCall(random_, names, 0, {1, 6, 0}, /*appends=*/true);
  Answer answer;
  Submit(call, answer);
  ASSERT_THAT(answer.Wait(), IsOk());
  model_.Append(call);
  EXPECT_TRUE(model_.IsRight(call, *answer.Wait()));
  ExpectNothingElseChanged();
}

TEST_F(PagedAttendTest, BothAlgorithmsReadPages) {
  BuildCache();
  const std::string name = MakeSequence("a", 9);
  for (const Algorithm algorithm : {Algorithm::kStandard, Algorithm::kFlash}) {
    const PagedCall call = MakeCall(random_, {name}, 0, {3}, /*appends=*/false);
    AttendRequest request = call.Attend();
    request.options.algorithm = algorithm;
    Answer answer;
    engine_->Attend(std::move(request), {.origin = {.request_id = "test"}}, answer.Callback());
    ASSERT_THAT(answer.Wait(), IsOk());
    EXPECT_EQ(answer.Wait()->report.algorithm, algorithm);
    EXPECT_TRUE(model_.IsRight(call, *answer.Wait())) << Name(algorithm);
  }
}

// Options that the model does not know: the same call over dense keys and values must agree.
TEST_F(PagedAttendTest, OptionsMeanTheSameAsOverDenseKeys) {
  BuildCache();
  const std::string name = MakeSequence("a", 11);
  const PagedCall call = MakeCall(random_, {name}, 0, {3}, /*appends=*/false);
  const PagedModel::Layer& layer = model_.sequence(name).layers[0];
  for (const Algorithm algorithm : {Algorithm::kStandard, Algorithm::kFlash}) {
    AttendRequest paged = call.Attend();
    paged.options = {.algorithm = algorithm,
                     .scale = 0.5,
                     .causal = true,
                     .window_left = 6,
                     .window_right = {},
                     .logit_soft_cap = 3,
                     .alibi_slopes = FloatTensor({kQueryHeads}, {0.1f, 0.2f, 0.3f, 0.4f}),
                     .sink_logits = FloatTensor({kQueryHeads}, {0.5f, -1.0f, 2.0f, 0.0f}),
                     .bias = {}};
    AttendRequest dense = paged;
    dense.paged.reset();
    dense.dense.emplace();
    dense.dense->key = FloatTensor({11, kKvHeads, kHeadDim}, layer.keys);
    dense.dense->value = FloatTensor({11, kKvHeads, kValueHeadDim}, layer.values);
    dense.dense->lengths = {11};
    dense.query = FloatTensor({3, kQueryHeads, kHeadDim}, call.query);
    dense.query_lengths = {3};
    Answer over_pages, over_rows;
    engine_->Attend(std::move(paged), {.origin = {.request_id = "test"}}, over_pages.Callback());
    engine_->Attend(std::move(dense), {.origin = {.request_id = "test"}}, over_rows.Callback());
    ASSERT_THAT(over_pages.Wait(), IsOk());
    ASSERT_THAT(over_rows.Wait(), IsOk());
    const auto* got = static_cast<const float*>(over_pages.Wait()->output->data->data());
    const auto* want = static_cast<const float*>(over_rows.Wait()->output->data->data());
    for (std::int64_t i = 0; i < 3 * kQueryHeads * kValueHeadDim; ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << i;
  }
}

TEST_F(PagedAttendTest, DiscardAppendsAndReturnsOnlyTheReport) {
  BuildCache();
  const PagedCall call = MakeCall(random_, {MakeSequence("a", 4)}, 0, {1}, /*appends=*/true);
  AttendRequest request = call.Attend();
  request.output.discard = true;
  Answer answer;
  engine_->Attend(std::move(request), {.origin = {.request_id = "test"}}, answer.Callback());
  ASSERT_THAT(answer.Wait(), IsOk());
  EXPECT_FALSE(answer.Wait()->output.has_value());
  EXPECT_GT(answer.Wait()->report.bytes, 0);
  model_.Append(call);
  ExpectNothingElseChanged();
}

TEST_F(PagedAttendTest, ACacheWhoseLeaseRanOutGoesThoughNobodyAsks) {
  BuildCache();
  MakeSequence("a", 8);
  ASSERT_GT(device_->memory_stats().allocation_count, 0);
  clock_.Advance(kv_cache::kDefaultLease + absl::Seconds(1));
  EXPECT_TRUE(AllMemoryReturns(*device_)) << "the sweeper has not come";
  EXPECT_THAT(engine_->kv_caches().GetCache({}, "kvCaches/c"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(PagedAttendTest, LayersAreApart) {
  BuildCache();
  const std::string name = MakeSequence("a", 3);
  Fill(name, 1, 6);
  for (const std::int64_t layer : {0, 1}) {
    const PagedCall call = MakeCall(random_, {name}, layer, {2}, /*appends=*/false);
    Answer answer;
    Submit(call, answer);
    ASSERT_THAT(answer.Wait(), IsOk());
    EXPECT_TRUE(model_.IsRight(call, *answer.Wait()));
  }
  EXPECT_EQ(used_pages(), 2) << "one table for both layers";
}

TEST_F(PagedAttendTest, StepsThatCollectedShareALaunchAndEachGetsItsOwnAnswer) {
  BuildCache();
  const std::vector<PagedCall> steps = MakeSteps(7);
  Answer occupant;
  Occupy(occupant);
  std::vector<Answer> answers(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) Submit(steps[i], answers[i]);
  device_->ReleaseCompletions(0);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    ASSERT_THAT(answers[i].Wait(), IsOk());
    EXPECT_EQ(answers[i].Wait()->report.batch_requests, static_cast<int>(steps.size()));
    EXPECT_GT(answers[i].Wait()->report.flops, 0);
    model_.Append(steps[i]);
    EXPECT_TRUE(model_.IsRight(steps[i], *answers[i].Wait())) << i;
  }
  EXPECT_GT(answers[6].Wait()->report.flops, answers[0].Wait()->report.flops) << "each has its own share";
  ExpectNothingElseChanged();
}

TEST_F(PagedAttendTest, SmallRandomTensorsShareALaunchToo) {
  BuildCache();
  Answer occupant;
  Occupy(occupant);
  std::vector<Answer> answers(3);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    PagedCall call;
    call.sequences = {MakeSequence(absl::StrCat("s", i))};
    call.tokens = {1};
    call.ragged = true;
    AttendRequest request = call.Attend();
    request.query = RandomTensor({1, kQueryHeads, kHeadDim}, i);
    request.paged->new_key = RandomTensor({1, kKvHeads, kHeadDim}, i);
    request.paged->new_value = RandomTensor({1, kKvHeads, kValueHeadDim}, i);
    engine_->Attend(std::move(request), {.origin = {.request_id = "test"}}, answers[i].Callback());
  }
  device_->ReleaseCompletions(0);
  for (const Answer& answer : answers) {
    ASSERT_THAT(answer.Wait(), IsOk());
    EXPECT_EQ(answer.Wait()->report.batch_requests, 3);
  }
}

TEST_F(PagedAttendTest, ACancelledStepLeavesTheBatchAndAppendsNothing) {
  BuildCache();
  const std::vector<PagedCall> steps = MakeSteps(3);
  Answer occupant;
  Occupy(occupant);
  std::vector<Answer> answers(3);
  std::vector<std::shared_ptr<Call>> calls;
  for (std::size_t i = 0; i < steps.size(); ++i) calls.push_back(Submit(steps[i], answers[i]));
  calls[1]->Cancel();
  device_->ReleaseCompletions(0);
  for (const int i : {0, 2}) {
    ASSERT_THAT(answers[i].Wait(), IsOk());
    EXPECT_EQ(answers[i].Wait()->report.batch_requests, 2);
    model_.Append(steps[i]);
    EXPECT_TRUE(model_.IsRight(steps[i], *answers[i].Wait()));
  }
  EXPECT_THAT(answers[1].Wait(), StatusIs(absl::StatusCode::kCancelled));
  ExpectNothingElseChanged();
}

TEST_F(PagedAttendTest, CancelledWhileItRunsItAppendsNothing) {
  BuildCache();
  const std::vector<PagedCall> steps = MakeSteps(1);
  device_->HoldCompletions(0);
  Answer answer;
  const std::shared_ptr<Call> call = Submit(steps[0], answer);
  device_->AwaitHeldCompletion(0);
  call->Cancel();
  EXPECT_THAT(answer.Wait(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(engine_->kv_caches().DeleteSequence({}, steps[0].sequences[0]), StatusIs(absl::StatusCode::kFailedPrecondition))
      << "the device has not let go of it yet";
  device_->ReleaseCompletions(0);
  ExpectNothingElseChanged();
}

TEST_F(PagedAttendTest, AppendsToOneSequenceComeInTheOrderOfTheirArrival) {
  BuildCache(/*capacity_pages=*/64, /*num_lanes=*/4);
  const std::string name = MakeSequence("a");
  std::vector<PagedCall> calls;
  std::vector<Answer> answers(12);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    // Steps and chunks, which have different priorities.
    calls.push_back(MakeCall(random_, {name}, 0, {i % 3 == 0 ? 18 : 1}, /*appends=*/true));
    Submit(calls.back(), answers[i]);
  }
  for (std::size_t i = 0; i < answers.size(); ++i) {
    ASSERT_THAT(answers[i].Wait(), IsOk());
    model_.Append(calls[i]);
    EXPECT_TRUE(model_.IsRight(calls[i], *answers[i].Wait())) << i;
  }
}

TEST_F(PagedAttendTest, OneWithoutPagesIsRefusedAndTheOthersAreNot) {
  BuildCache(/*capacity_pages=*/4);
  const std::string small = MakeSequence("small", 1), large = MakeSequence("large", 1);
  const PagedCall fits = MakeCall(random_, {small}, 0, {1}, true);
  const PagedCall does_not_fit = MakeCall(random_, {large}, 0, {16}, true);
  Answer occupant, small_answer, large_answer;
  Occupy(occupant);
  Submit(does_not_fit, large_answer);
  Submit(fits, small_answer);
  device_->ReleaseCompletions(0);
  EXPECT_THAT(large_answer.Wait(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(base::ErrorReason(large_answer.Wait().status()), base::kReasonKvCacheFull);
  ASSERT_THAT(small_answer.Wait(), IsOk());
  model_.Append(fits);
  ExpectNothingElseChanged();
}

TEST_F(PagedAttendTest, ACacheIsFreeWhenTheAnswerHasCome) {
  BuildCache();
  const std::vector<PagedCall> steps = MakeSteps(2);
  for (const PagedCall& step : steps) {
    Answer answer;
    const std::shared_ptr<Call> call = Submit(step, answer);
    ASSERT_THAT(answer.Wait(), IsOk());
    EXPECT_OK(engine_->kv_caches().DeleteSequence({}, step.sequences[0])) << "the call is still held";
  }
  Answer refused;
  EXPECT_EQ(Submit(steps[0], refused), nullptr);
  EXPECT_EQ(base::ErrorReason(refused.Wait().status()), base::kReasonSequenceNotFound);
  EXPECT_OK(engine_->kv_caches().DeleteCache({}, "kvCaches/c"));
  EXPECT_TRUE(AllMemoryReturns(*device_));
}

TEST_F(PagedAttendTest, BadRequestsNameTheFieldAndChangeNothing) {
  BuildCache();
  const std::string a = MakeSequence("a", 3), b = MakeSequence("b", 3);
  struct Row {
    const char* what;
    void (*spoil)(AttendRequest&);
    const char* field;
  };
  const Row rows[] = {
      {"dense too", [](AttendRequest& r) { r.dense.emplace(); }, "paged"},
      {"a bias",
       [](AttendRequest& r) {
         r.options.bias = RandomTensor({1, 1, 1, 4}, 1);
       },
       "options.bias"},
      {"one sequence for two rows", [](AttendRequest& r) { r.paged->sequences.pop_back(); }, "paged.sequences"},
      {"one sequence twice", [](AttendRequest& r) { r.paged->sequences[1] = r.paged->sequences[0]; }, "paged.sequences[1]"},
      {"a layer too high", [](AttendRequest& r) { r.paged->layer = kLayers; }, "paged.layer"},
      {"a negative layer", [](AttendRequest& r) { r.paged->layer = -1; }, "paged.layer"},
      {"a key without value", [](AttendRequest& r) { r.paged->new_value.reset(); }, "paged.new_value"},
      {"a value without key", [](AttendRequest& r) { r.paged->new_key.reset(); }, "paged.new_key"},
      {"fewer new rows than queries",
       [](AttendRequest& r) {
         r.paged->new_key = RandomTensor({2, 1, kKvHeads, kHeadDim}, 1);
         r.paged->new_value = RandomTensor({2, 1, kKvHeads, kValueHeadDim}, 1);
       },
       "paged.new_key.shape"},
      {"other value rows",
       [](AttendRequest& r) {
         r.paged->new_value = RandomTensor({2, 1, kKvHeads, kValueHeadDim}, 1);
       },
       "paged.new_value.shape"},
      {"another head_dim of values",
       [](AttendRequest& r) {
         r.paged->new_value = RandomTensor({2, 2, kKvHeads, kHeadDim}, 1);
       },
       "paged.new_value.shape"},
      {"another number of heads",
       [](AttendRequest& r) {
         r.paged->new_key = RandomTensor({2, 2, 1, kHeadDim}, 1);
         r.paged->new_value = RandomTensor({2, 2, 1, kValueHeadDim}, 1);
       },
       "paged.new_key.shape"},
      {"another type",
       [](AttendRequest& r) {
         r.query = RandomTensor({2, 2, kQueryHeads, kHeadDim}, 1, kernels::DataType::kFloat16);
       },
       "query.data_type"},
      {"another head_dim of queries",
       [](AttendRequest& r) {
         r.query = RandomTensor({2, 2, kQueryHeads, 16}, 1);
       },
       "query.shape"},
      {"heads that don't divide",
       [](AttendRequest& r) {
         r.query = RandomTensor({2, 2, 3, kHeadDim}, 1);
       },
       "query.shape"},
  };
  for (const Row& row : rows) {
    PagedCall call = MakeCall(random_, {a, b}, 0, {2, 2}, /*appends=*/true);
    call.ragged = false;
    AttendRequest request = call.Attend();
    row.spoil(request);
    Answer answer;
    EXPECT_EQ(engine_->Attend(std::move(request), {.origin = {.request_id = "test"}}, answer.Callback()), nullptr) << row.what;
    EXPECT_THAT(answer.Wait(), StatusIs(absl::StatusCode::kInvalidArgument)) << row.what;
    EXPECT_EQ(base::ErrorField(answer.Wait().status()), row.field) << row.what << ": " << answer.Wait().status();
  }
  ExpectNothingElseChanged();
}

TEST_F(PagedAttendTest, BadAppendsNameTheField) {
  BuildCache();
  const std::string a = MakeSequence("a", 3);
  const auto append = [&](void (*spoil)(AppendKeyValueRequest&)) {
    PagedCall call = MakeCall(random_, {a}, 0, {2}, /*appends=*/true);
    call.ragged = false;
    AppendKeyValueRequest request = call.Append();
    spoil(request);
    AppendAnswer answer;
    EXPECT_EQ(engine_->AppendKeyValue(std::move(request), {.origin = {.request_id = "test"}}, answer.Callback()), nullptr);
    return base::ErrorField(answer.Wait().status()).value_or("none");
  };
  EXPECT_EQ(append([](AppendKeyValueRequest& r) { r.key.reset(); }), "key");
  EXPECT_EQ(append([](AppendKeyValueRequest& r) { r.value.reset(); }), "value");
  EXPECT_EQ(append([](AppendKeyValueRequest& r) { r.sequences.clear(); }), "sequences");
  EXPECT_EQ(append([](AppendKeyValueRequest& r) { r.layer = 7; }), "layer");
  EXPECT_EQ(append([](AppendKeyValueRequest& r) { r.lengths = {2}; }), "lengths");
  EXPECT_EQ(append([](AppendKeyValueRequest& r) { r.key = RandomTensor({1, 2, kKvHeads, 16}, 1); }), "key.shape");
  const std::string text = metrics_.Serialize();
  EXPECT_THAT(text, HasSubstr("ridgeline_requests_total{operation=\"append_key_value\",outcome=\"ok\"} 1"));
  EXPECT_THAT(text, HasSubstr("ridgeline_requests_total{operation=\"append_key_value\",outcome=\"invalid_argument\"} 6"));
  ExpectNothingElseChanged();
}

// ---- Transfers --------------------------------------------------------------------------------------------------------------

TEST_F(PagedAttendTest, AnExportIsASnapshotThatCanBeImported) {
  BuildCache();
  const std::string name = MakeSequence("a", 9);
  Fill(name, 1, 2);
  const PagedModel::Sequence before = model_.sequence(name);
  ASSERT_OK_AND_ASSIGN(const auto reader, engine_->ExportSequence({}, name));
  ASSERT_OK(engine_->kv_caches().TruncateSequence({}, name, 1));
  model_.Truncate(name, 1);
  Fill(name, 0, 5);

  ASSERT_OK_AND_ASSIGN(const auto writer, engine_->ImportSequence({}, "kvCaches/c", "copy", reader->header()));
  while (true) {
    Awaited<absl::StatusOr<std::optional<OutgoingChunk>>> next;
    reader->Next({.origin = {.request_id = "test"}}, next.Callback());
    ASSERT_OK(next.Wait());
    if (!next.Wait()->has_value()) break;
    const OutgoingChunk& chunk = **next.Wait();
    EXPECT_THAT(writer->Commit(), StatusIs(absl::StatusCode::kInvalidArgument));
    const auto incoming = [](const OutputTensor& tensor) {
      InlineData data;
      data.slices = {{tensor.data->data(), tensor.data->size_bytes()}};
      data.size_bytes = tensor.data->size_bytes();
      data.owner = tensor.data;
      return Tensor{.data_type = tensor.data_type, .shape = tensor.shape, .storage = std::move(data)};
    };
    Awaited<absl::Status> written;
    writer->Append(
        {.layer = chunk.layer, .token_begin = chunk.token_begin, .key = incoming(chunk.key), .value = incoming(chunk.value)},
        {.origin = {.request_id = "test"}}, written.Callback());
    ASSERT_OK(written.Wait());
  }
  EXPECT_THAT(engine_->kv_caches().GetSequence({}, NameOf("c", "copy")), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK_AND_ASSIGN(const std::string copy, writer->Commit());
  EXPECT_EQ(copy, NameOf("c", "copy"));
  EXPECT_TRUE(ExportsAs(*engine_, copy, before));
  EXPECT_TRUE(ExportsAs(*engine_, name, model_.sequence(name)));
}

TEST_F(PagedAttendTest, AnImportThatIsGivenUpLeavesNothing) {
  BuildCache();
  SequenceHeader header{.layers = kLayers,
                        .kv_heads = kKvHeads,
                        .head_dim = kHeadDim,
                        .value_head_dim = kValueHeadDim,
                        .data_type = kernels::DataType::kFloat32,
                        .lengths = {8, 0}};
  ASSERT_OK_AND_ASSIGN(auto writer, engine_->ImportSequence({}, "kvCaches/c", "a", header));
  const auto append = [&](std::int64_t layer, std::int64_t token_begin, std::int64_t tokens) {
    Awaited<absl::Status> written;
    writer->Append({.layer = layer,
                    .token_begin = token_begin,
                    .key = RandomTensor({tokens, kKvHeads, kHeadDim}, 1),
                    .value = RandomTensor({tokens, kKvHeads, kValueHeadDim}, 2)},
                   {.origin = {.request_id = "test"}}, written.Callback());
    return base::ErrorField(written.Wait()).value_or(written.Wait().ok() ? "" : "none");
  };
  EXPECT_EQ(append(0, 0, 5), "");
  EXPECT_EQ(append(1, 0, 1), "part.chunk.layer");
  EXPECT_EQ(append(0, 0, 1), "part.chunk.token_begin");
  EXPECT_EQ(append(0, 5, 4), "part.chunk.key.shape");
  EXPECT_EQ(used_pages(), 2);
  writer = nullptr;
  EXPECT_EQ(used_pages(), 0);
  header.lengths.pop_back();
  EXPECT_EQ(base::ErrorField(engine_->ImportSequence({}, "kvCaches/c", "a", header).status()), "part.header.lengths");
  header.kv_heads = 7;
  EXPECT_EQ(base::ErrorField(engine_->ImportSequence({}, "kvCaches/c", "a", header).status()), "part.header.kv_heads");
}

}  // namespace
}  // namespace ridgeline::engine
