// Rotary embedding with an append: what goes to the pages, all rows or none, in order, within leases and capacity.
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/fuse_requests.h"
#include "tests/unit/engine/paged_fixture.h"

namespace ridgeline::engine {
namespace {

using kernels::DataType;
using kernels::fused::Mode;
using kernels::fused::Op;
using support::IsOk;
using support::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor Positions(std::vector<std::int64_t> shape, std::vector<std::int64_t> values) {
  auto owner = std::make_shared<const std::vector<std::int64_t>>(std::move(values));
  InlineData data;
  data.size_bytes = static_cast<std::int64_t>(owner->size() * sizeof(std::int64_t));
  data.slices = {{owner->data(), data.size_bytes}};
  data.owner = std::move(owner);
  return {.data_type = DataType::kInt64, .shape = std::move(shape), .storage = std::move(data)};
}

// The call's rows, with its query, at positions of its sequences.
FuseRequest RequestOf(const PagedCall& call) {
  AppendKeyValueRequest append = call.Append();
  FuseRequest request;
  request.op = Op::kRopeAppend;
  request.input = call.Attend().query;
  request.append = {.sequences = std::move(append.sequences),
                    .layer = append.layer,
                    .new_key = std::move(append.key),
                    .new_value = std::move(append.value),
                    .lengths = std::move(append.lengths)};
  return request;
}

// At position 0 nothing turns, so the cache gets the keys as they are, and the model knows it all.
FuseRequest Unturned(const PagedCall& call) {
  FuseRequest request = RequestOf(call);
  std::vector<std::int64_t> shape = request.append.new_key->shape;
  shape.resize(shape.size() - 2);
  request.positions = Positions(std::move(shape), std::vector<std::int64_t>(call.total_tokens()));
  return request;
}

class RopeAppendTest : public PagedFixture {
 protected:
  std::shared_ptr<Call> Fuse(FuseRequest request, FuseAnswer answer) {
    return engine_->Fuse(std::move(request), {.origin = {.request_id = "test"}}, answer.Callback());
  }

  void ExpectAsModelled() {
    AwaitIdle();
    for (const auto& [name, sequence] : model_.sequences()) EXPECT_TRUE(ExportsAs(*engine_, name, sequence)) << name;
    EXPECT_EQ(used_pages(), model_.used_pages());
  }
};

TEST_F(RopeAppendTest, AppendsToRaggedAndDenseSequencesInBothModes) {
  BuildCache();
  const std::vector<std::string> names = {MakeSequence("a", 5), MakeSequence("b"), MakeSequence("c", 8)};
  for (const Mode mode : {Mode::kFused, Mode::kUnfused}) {
    for (const std::vector<std::int64_t>& tokens : {std::vector<std::int64_t>{1, 6, 0}, {2, 2, 2}}) {
      const PagedCall call = MakeCall(random_, names, /*layer=*/1, tokens, /*appends=*/true);
      FuseRequest request = Unturned(call);
      request.mode = mode;
      FuseAnswer answer;
      Fuse(std::move(request), answer);
      ASSERT_THAT(answer.Wait(), IsOk());
      model_.Append(call);
      ASSERT_EQ(answer.Wait()->lengths.size(), 3u);
      for (std::size_t i = 0; i < names.size(); ++i) {
        EXPECT_EQ(answer.Wait()->lengths[i], model_.sequence(names[i]).layers[1].tokens());
      }
      ExpectAsModelled();
    }
  }
}

// The same as turning keys by their places in the sequence, then appending them; queries likewise.
TEST_F(RopeAppendTest, TurnsByTheTokensPlaceInItsSequence) {
  BuildCache();
  const PagedCall before = MakeCall(random_, {MakeSequence("a"), MakeSequence("b")}, 0, {9, 3}, /*appends=*/true);
  const std::vector<std::int64_t> places = {0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2};
  const auto rope = [&](std::vector<float> rows, std::int64_t heads) {
    FuseRequest request;
    request.op = Op::kRope;
    request.rotary_dim = 6;
    request.base = 100;
    request.rope_layout = kernels::fused::RopeLayout::kInterleaved;
    request.input = FloatTensor({12, heads, kHeadDim}, std::move(rows));
    request.positions = Positions({12}, places);
    FuseAnswer answer;
    Fuse(std::move(request), answer);
    EXPECT_THAT(answer.Wait(), IsOk());
    const auto* turned = static_cast<const float*>(answer.Wait()->outputs[0].data->data());
    return std::vector<float>(turned, turned + 12 * heads * kHeadDim);
  };
  PagedCall turned = before;
  turned.key = rope(before.key, kKvHeads);
  ASSERT_NE(turned.key, before.key);
  // Three tokens first, so that the second call begins within a page.
  FuseRequest request = RequestOf(before);
  request.rotary_dim = 6;
  request.base = 100;
  request.rope_layout = kernels::fused::RopeLayout::kInterleaved;
  FuseAnswer answer;
  Fuse(std::move(request), answer);
  ASSERT_THAT(answer.Wait(), IsOk());
  EXPECT_THAT(answer.Wait()->lengths, ElementsAre(9, 3));
  model_.Append(turned);
  ExpectAsModelled();
  const std::vector<float> want = rope(before.query, kQueryHeads);
  ASSERT_EQ(answer.Wait()->outputs.size(), 1u);
  const auto* got = static_cast<const float*>(answer.Wait()->outputs[0].data->data());
  EXPECT_EQ(std::vector<float>(got, got + want.size()), want);
}

TEST_F(RopeAppendTest, GoesOnWhereTheSequenceEnds) {
  BuildCache();
  const std::string one = MakeSequence("one"), other = MakeSequence("other");
  const PagedCall whole = MakeCall(random_, {one}, 0, {7}, /*appends=*/true);
  FuseAnswer all;
  Fuse(RequestOf(whole), all);
  ASSERT_THAT(all.Wait(), IsOk());
  for (std::int64_t t = 0; t < 7; ++t) {  // a decode loop
    PagedCall step = whole;
    step.sequences = {other};
    step.tokens = {1};
    step.query.assign(whole.query.begin() + t * kQueryRowElems, whole.query.begin() + (t + 1) * kQueryRowElems);
    step.key.assign(whole.key.begin() + t * kKeyRowElems, whole.key.begin() + (t + 1) * kKeyRowElems);
    step.value.assign(whole.value.begin() + t * kValueRowElems, whole.value.begin() + (t + 1) * kValueRowElems);
    FuseAnswer answer;
    Fuse(RequestOf(step), answer);
    ASSERT_THAT(answer.Wait(), IsOk());
    EXPECT_THAT(answer.Wait()->lengths, ElementsAre(t + 1));
  }
  // Both now hold the same: attention over either gives the same bytes.
  std::vector<std::vector<float>> outputs;
  for (const std::string& name : {one, other}) {
    PagedCall look = whole;
    look.sequences = {name};
    look.appends = false;
    Answer answer;
    Submit(look, answer);
    ASSERT_THAT(answer.Wait(), IsOk());
    const auto* output = static_cast<const float*>(answer.Wait()->output->data->data());
    outputs.emplace_back(output, output + 7 * kQueryHeads * kValueHeadDim);
  }
  EXPECT_EQ(outputs[0], outputs[1]);
}

TEST_F(RopeAppendTest, KeysAloneTurnWithoutAQuery) {
  BuildCache();
  const PagedCall call = MakeCall(random_, {MakeSequence("a", 2)}, 0, {3}, /*appends=*/true);
  FuseRequest request = Unturned(call);
  request.input.reset();
  FuseAnswer answer;
  Fuse(std::move(request), answer);
  ASSERT_THAT(answer.Wait(), IsOk());
  EXPECT_TRUE(answer.Wait()->outputs.empty());
  model_.Append(call);
  ExpectAsModelled();
}

TEST_F(RopeAppendTest, WritesToACopyOfWhatAForkShares) {
  BuildCache();
  const std::string origin = MakeSequence("origin", 6), fork = NameOf("c", "fork");
  ASSERT_OK(engine_->kv_caches().ForkSequence({}, origin, "fork"));
  model_.sequences()[fork] = model_.sequence(origin);
  const PagedCall call = MakeCall(random_, {fork}, 0, {1}, /*appends=*/true);
  FuseAnswer answer;
  Fuse(Unturned(call), answer);
  ASSERT_THAT(answer.Wait(), IsOk());
  model_.Append(call);
  ExpectAsModelled();
}

TEST_F(RopeAppendTest, OneAfterTheOtherWithAppends) {
  BuildCache(/*capacity_pages=*/64, /*num_lanes=*/3);
  const std::string name = MakeSequence("a", 3);
  std::vector<PagedCall> calls;
  std::vector<FuseAnswer> fused(6);
  std::vector<AppendAnswer> appended(6);
  for (int i = 0; i < 12; ++i) {
    calls.push_back(MakeCall(random_, {name}, 0, {i % 5 + 1}, /*appends=*/true));
    if (i % 2 == 0) {
      Fuse(Unturned(calls.back()), fused[i / 2]);
    } else {
      engine_->AppendKeyValue(calls.back().Append(), {.origin = {.request_id = "test"}}, appended[i / 2].Callback());
    }
  }
  for (const FuseAnswer& answer : fused) EXPECT_THAT(answer.Wait(), IsOk());
  for (const AppendAnswer& answer : appended) EXPECT_THAT(answer.Wait(), IsOk());
  for (const PagedCall& call : calls) model_.Append(call);
  ExpectAsModelled();
}

TEST_F(RopeAppendTest, CallsThatCollectedShareALaunchAndEachGetsItsOwnAnswer) {
  BuildCache(/*capacity_pages=*/128);
  const std::vector<std::vector<std::int64_t>> tokens = {{1}, {3, 2}, {1}, {0}, {16}};
  std::vector<PagedCall> calls;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::vector<std::string> names;
    for (std::size_t j = 0; j < tokens[i].size(); ++j) names.push_back(MakeSequence(absl::StrCat("s", i, "-", j), 3 * i));
    calls.push_back(MakeCall(random_, names, 0, tokens[i], /*appends=*/true));
  }
  Answer occupant;
  Occupy(occupant);
  std::vector<FuseAnswer> answers(calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) Fuse(Unturned(calls[i]), answers[i]);
  // With another base, it turns otherwise.
  const PagedCall other_call = MakeCall(random_, {MakeSequence("other")}, 0, {1}, /*appends=*/true);
  FuseRequest other = Unturned(other_call);
  other.base = 500;
  other.mode = Mode::kUnfused;
  FuseAnswer other_answer;
  Fuse(std::move(other), other_answer);
  device_->ReleaseCompletions(0);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    ASSERT_THAT(answers[i].Wait(), IsOk());
    EXPECT_EQ(answers[i].Wait()->report.batch_requests, static_cast<int>(calls.size())) << i;
    model_.Append(calls[i]);
    // At position 0 a query comes back as it was.
    ASSERT_EQ(answers[i].Wait()->outputs.size(), 1u);
    const auto& output = answers[i].Wait()->outputs[0].data;
    const std::size_t output_bytes = output == nullptr ? 0 : output->size_bytes();
    ASSERT_EQ(output_bytes, calls[i].query.size() * sizeof(float));
    if (output_bytes == 0) continue;
    EXPECT_EQ(std::memcmp(output->data(), calls[i].query.data(), output_bytes), 0) << i;
  }
  EXPECT_GT(answers[4].Wait()->report.bytes, answers[0].Wait()->report.bytes) << "each has its own share";
  ASSERT_THAT(other_answer.Wait(), IsOk());
  EXPECT_EQ(other_answer.Wait()->report.batch_requests, 1);
  model_.Append(other_call);
  ExpectAsModelled();
}

TEST_F(RopeAppendTest, AFullCacheTakesNothing) {
  BuildCache(/*capacity_pages=*/3);
  const std::string name = MakeSequence("a", 6);
  FuseAnswer answer;
  Fuse(Unturned(MakeCall(random_, {name}, 0, {7}, /*appends=*/true)), answer);
  EXPECT_THAT(answer.Wait(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(base::ErrorReason(answer.Wait().status()), base::kReasonKvCacheFull);
  ExpectAsModelled();
}

TEST_F(RopeAppendTest, CancelledWhileItRunsItAppendsAllOrNothing) {
  BuildCache();
  const std::string name = MakeSequence("a", 6);
  device_->HoldCompletions(0);
  const PagedCall call = MakeCall(random_, {name}, 0, {4}, /*appends=*/true);
  FuseAnswer answer;
  const std::shared_ptr<Call> running = Fuse(Unturned(call), answer);
  device_->AwaitHeldCompletion(0);
  running->Cancel();
  EXPECT_THAT(answer.Wait(), StatusIs(absl::StatusCode::kCancelled));
  device_->ReleaseCompletions(0);
  AwaitIdle();
  const auto info = engine_->kv_caches().GetSequence({}, name);
  ASSERT_THAT(info, IsOk());
  if (info->lengths[0] == 10) model_.Append(call);
  ExpectAsModelled();
}

TEST_F(RopeAppendTest, EveryCallOfTheDeviceMayFail) {
  BuildCache();
  const std::string origin = MakeSequence("origin", 6), fork = NameOf("c", "fork");
  ASSERT_OK(engine_->kv_caches().ForkSequence({}, origin, "fork"));
  model_.sequences()[fork] = model_.sequence(origin);
  bool failed = true;
  for (std::int64_t n = 0; failed; ++n) {
    SCOPED_TRACE(n);
    const PagedCall call = MakeCall(random_, {origin, fork}, 0, {3, 6}, /*appends=*/true);
    FuseRequest request = Unturned(call);
    request.mode = Mode::kUnfused;
    FuseAnswer answer;
    device_->FailCall(n, absl::InternalError("injected"));
    Fuse(std::move(request), answer);
    failed = !answer.Wait().ok();
    if (!failed) {
      EXPECT_GE(n, 11);
      model_.Append(call);
      device_->FailCall(-1, absl::OkStatus());
    }
    ExpectAsModelled();
  }
}

TEST_F(RopeAppendTest, WhatIsWrongNamesTheFieldAndChangesNothing) {
  BuildCache();
  const std::string name = MakeSequence("a", 6);
  struct BadRequest {
    const char* field;
    std::function<void(FuseRequest&)> spoil;
    absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  };
  using R = FuseRequest;
  const std::vector<BadRequest> all = {
      {"rope_append.sequences", [](R& r) { r.append.sequences.clear(); }},
      {"rope_append.sequences", [](R& r) { r.append.sequences.push_back(r.append.sequences[0]); }},
      {"rope_append.layer", [](R& r) { r.append.layer = kLayers; }},
      {"rope_append.new_key", [](R& r) { r.append.new_key.reset(); }},
      {"rope_append.new_key.shape",
       [](R& r) {
         r.append.new_key = RandomTensor({1, 2, kKvHeads + 1, kHeadDim}, 1),
         r.append.new_value = RandomTensor({1, 2, kKvHeads + 1, kValueHeadDim}, 1);
       }},
      {"rope_append.new_value", [](R& r) { r.append.new_value.reset(); }},
      {"rope_append.new_value.shape",
       [](R& r) {
         r.append.new_value = RandomTensor({1, 2, kKvHeads, kHeadDim}, 1);
       }},
      {"rope_append.lengths", [](R& r) { r.append.lengths = {2}; }},
      {"rope_append.query.shape",
       [](R& r) {
         r.input = RandomTensor({1, 3, kQueryHeads, kHeadDim}, 1);
       }},
      {"rope_append.query.shape",
       [](R& r) {
         r.input = RandomTensor({2, kQueryHeads, kHeadDim}, 1);
       }},
      {"rope_append.query.shape",
       [](R& r) {
         r.input = RandomTensor({1, 2, kQueryHeads, 2 * kHeadDim}, 1);
       }},
      {"rope_append.query.shape",
       [](R& r) {
         r.input = RandomTensor({1, 2, 1 << 16, kHeadDim}, 1);
       }},
      {"rope_append.query.data_type",
       [](R& r) {
         r.input = RandomTensor({1, 2, kQueryHeads, kHeadDim}, 1, DataType::kFloat16);
       }},
      {"rope_append.positions.shape",
       [](R& r) {
         r.positions = Positions({2}, {0, 1});
       }},
      {"rope_append.positions.random",
       [](R& r) {
         r.positions = RandomTensor({1, 2}, 1, DataType::kInt64);
       }},
      {"rope_append.rotary_dim", [](R& r) { r.rotary_dim = 5; }},
      {"rope_append.base", [](R& r) { r.base = -1; }},
  };
  for (const BadRequest& bad : all) {
    SCOPED_TRACE(bad.field);
    FuseRequest request = RequestOf(MakeCall(random_, {name}, 0, {2}, /*appends=*/true));
    if (request.append.new_key->shape.size() == 3) {
      request.append.new_key->shape.insert(request.append.new_key->shape.begin(), 1);
      request.append.new_value->shape.insert(request.append.new_value->shape.begin(), 1);
      request.input->shape.insert(request.input->shape.begin(), 1);
      request.append.lengths.clear();
    }
    bad.spoil(request);
    FuseAnswer answer;
    EXPECT_EQ(Fuse(std::move(request), answer), nullptr);
    ASSERT_TRUE(answer.arrived());
    EXPECT_THAT(answer.Wait(), StatusIs(bad.code));
    EXPECT_EQ(base::ErrorField(answer.Wait().status()), bad.field) << answer.Wait().status();
  }
  FuseRequest missing = RequestOf(MakeCall(random_, {NameOf("c", "none")}, 0, {2}, /*appends=*/true));
  FuseAnswer answer;
  Fuse(std::move(missing), answer);
  EXPECT_THAT(answer.Wait(), StatusIs(absl::StatusCode::kNotFound));
  ExpectAsModelled();
}

}  // namespace
}  // namespace ridgeline::engine
