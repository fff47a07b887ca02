#include "server/api/kv_cache_converter.h"

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/error.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::api {
namespace {

using engine::kv_cache::EvictionPolicy;
using support::StatusIs;
using ::testing::ElementsAre;

TEST(CreateKvCacheTest, EveryFieldArrives) {
  v1::CreateKvCacheRequest message;
  message.set_kv_cache_id("chat");
  v1::KvCache& cache = *message.mutable_kv_cache();
  cache.set_layers(2);
  cache.set_kv_heads(3);
  cache.set_head_dim(64);
  cache.set_value_head_dim(32);
  cache.set_data_type(v1::DATA_TYPE_BFLOAT16);
  cache.set_page_tokens(7);
  cache.set_capacity_pages(11);
  cache.set_capacity_bytes(13);
  cache.mutable_lease_duration()->set_seconds(90);
  cache.mutable_lease_duration()->set_nanos(500'000'000);
  cache.set_eviction_policy(v1::EVICTION_POLICY_LEAST_RECENTLY_USED);
  ASSERT_OK_AND_ASSIGN(const engine::kv_cache::CreateCacheRequest request, FromMessage(message));
  EXPECT_EQ(request.cache_id, "chat");
  EXPECT_EQ(request.geometry.layers, 2);
  EXPECT_EQ(request.geometry.kv_heads, 3);
  EXPECT_EQ(request.geometry.head_dim, 64);
  EXPECT_EQ(request.geometry.value_head_dim, 32);
  EXPECT_EQ(request.geometry.data_type, kernels::DataType::kBFloat16);
  EXPECT_EQ(request.geometry.page_tokens, 7);
  EXPECT_EQ(request.geometry.capacity_pages, 11);
  EXPECT_EQ(request.geometry.capacity_bytes, 13);
  EXPECT_EQ(request.lease_duration, absl::Seconds(90.5));
  EXPECT_EQ(request.eviction_policy, EvictionPolicy::kLeastRecentlyUsed);
}

TEST(CreateKvCacheTest, NothingIsGivenByDefault) {
  ASSERT_OK_AND_ASSIGN(const engine::kv_cache::CreateCacheRequest request, FromMessage(v1::CreateKvCacheRequest()));
  EXPECT_FALSE(request.geometry.data_type.has_value());
  EXPECT_FALSE(request.lease_duration.has_value());
  EXPECT_EQ(request.eviction_policy, EvictionPolicy::kNone);
}

TEST(CreateKvCacheTest, EnumeratorsThatAreUnknownAreNamed) {
  v1::CreateKvCacheRequest message;
  message.mutable_kv_cache()->set_eviction_policy(static_cast<v1::EvictionPolicy>(9));
  absl::Status status = FromMessage(message).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(base::ErrorField(status), "kv_cache.eviction_policy");
  message.mutable_kv_cache()->clear_eviction_policy();
  message.mutable_kv_cache()->set_data_type(static_cast<v1::DataType>(99));
  status = FromMessage(message).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(base::ErrorField(status), "kv_cache.data_type");
}

TEST(KvCacheMessageTest, EveryFieldLeaves) {
  engine::kv_cache::CacheInfo info;
  info.name = "kvCaches/chat";
  info.owner = "alice";
  info.geometry = {kernels::DataType::kFloat16, 2, 3, 64, 32, 16, 10};
  info.used_pages = 4;
  info.lease_duration = absl::Minutes(10);
  info.expire_time = absl::FromUnixMillis(1'500'250);
  info.eviction_policy = EvictionPolicy::kLeastRecentlyUsed;
  info.routing_token = "token";
  info.instance_id = "instance";
  info.create_time = absl::FromUnixSeconds(900);
  info.sequences = 5;
  info.evicted_sequences = 6;
  const v1::KvCache message = ToMessage(info);
  EXPECT_EQ(message.name(), "kvCaches/chat");
  EXPECT_EQ(message.client(), "alice");
  EXPECT_EQ(message.layers(), 2);
  EXPECT_EQ(message.kv_heads(), 3);
  EXPECT_EQ(message.head_dim(), 64);
  EXPECT_EQ(message.value_head_dim(), 32);
  EXPECT_EQ(message.data_type(), v1::DATA_TYPE_FLOAT16);
  EXPECT_EQ(message.page_tokens(), 16);
  EXPECT_EQ(message.capacity_pages(), 10);
  EXPECT_EQ(message.capacity_bytes(), 10 * 2 * 16 * 3 * (64 + 32) * 2);
  EXPECT_EQ(message.used_pages(), 4);
  EXPECT_EQ(message.lease_duration().seconds(), 600);
  EXPECT_EQ(message.expire_time().seconds(), 1500);
  EXPECT_EQ(message.expire_time().nanos(), 250'000'000);
  EXPECT_EQ(message.eviction_policy(), v1::EVICTION_POLICY_LEAST_RECENTLY_USED);
  EXPECT_EQ(message.routing_token(), "token");
  EXPECT_EQ(message.instance_id(), "instance");
  EXPECT_EQ(message.create_time().seconds(), 900);
  EXPECT_EQ(message.sequence_count(), 5);
  EXPECT_EQ(message.evicted_sequence_count(), 6);
}

TEST(SequenceMessageTest, EveryFieldLeaves) {
  engine::kv_cache::SequenceInfo info;
  info.name = "kvCaches/chat/sequences/a";
  info.owner = "alice";
  info.lengths = {3, 0, 4};
  info.pages = 2;
  info.shared_pages = 1;
  info.create_time = absl::FromUnixSeconds(1);
  info.use_time = absl::FromUnixSeconds(2);
  const v1::Sequence message = ToMessage(info);
  EXPECT_EQ(message.name(), info.name);
  EXPECT_EQ(message.client(), "alice");
  EXPECT_THAT(message.lengths(), ElementsAre(3, 0, 4));
  EXPECT_EQ(message.page_count(), 2);
  EXPECT_EQ(message.shared_page_count(), 1);
  EXPECT_EQ(message.create_time().seconds(), 1);
  EXPECT_EQ(message.use_time().seconds(), 2);
}

absl::StatusOr<engine::AppendKeyValueRequest> ParseAppend(const std::string& wire) {
  const auto bytes = std::make_shared<std::string>(wire);
  const device::HostSlice slice{bytes->data(), static_cast<std::int64_t>(bytes->size())};
  return ParseAppendKeyValueRequest({&slice, 1}, bytes);
}

TEST(ParseAppendKeyValueRequestTest, EveryFieldArrives) {
  v1::AppendKeyValueRequest message;
  message.add_sequences("a");
  message.add_sequences("b");
  message.set_layer(-3);
  message.add_lengths(1);
  message.add_lengths(2);
  message.mutable_key()->set_data_type(v1::DATA_TYPE_FLOAT32);
  message.mutable_key()->add_shape(3);
  message.mutable_key()->set_inline_data("keys");
  message.mutable_value()->mutable_random()->set_seed(5);
  ASSERT_OK_AND_ASSIGN(const engine::AppendKeyValueRequest request, ParseAppend(message.SerializeAsString()));
  EXPECT_THAT(request.sequences, ElementsAre("a", "b"));
  EXPECT_EQ(request.layer, -3);
  EXPECT_THAT(request.lengths, ElementsAre(1, 2));
  EXPECT_THAT(request.key->shape, ElementsAre(3));
  EXPECT_EQ(std::get<engine::InlineData>(request.key->storage).size_bytes, 4);
  EXPECT_EQ(std::get<engine::RandomFill>(request.value->storage).seed, 5u);
}

TEST(ParseAppendKeyValueRequestTest, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(base::ErrorReason(ParseAppend("\xff\xff").status()), base::kReasonMalformedMessage);
  v1::AppendKeyValueRequest message;
  message.mutable_value()->set_data_type(static_cast<v1::DataType>(99));
  EXPECT_EQ(base::ErrorField(ParseAppend(message.SerializeAsString()).status()), "value.data_type");
}

}  // namespace
}  // namespace ridgeline::api
