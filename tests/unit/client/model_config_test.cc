#include "client/cli/model_config.h"

#include <string>

#include "client/cli/arguments.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::cli {
namespace {

using ::testing::HasSubstr;

v1::PlanMemoryRequest Read(const std::string& json) {
  v1::PlanMemoryRequest request;
  EXPECT_OK(ReadModelConfig("config.json", json, request));
  return request;
}

TEST(ModelConfigTest, Llama) {
  const v1::PlanMemoryRequest request = Read(
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 4096,
          "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
          "rope_scaling": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 128256})");
  const v1::ModelGeometry& model = request.model();
  EXPECT_EQ(model.layers(), 32);
  EXPECT_EQ(model.hidden_size(), 4096);
  EXPECT_EQ(model.query_heads(), 32);
  EXPECT_EQ(model.kv_heads(), 8);
  EXPECT_EQ(model.head_dim(), 0);
  EXPECT_EQ(model.intermediate_size(), 14336);
  EXPECT_EQ(model.vocabulary_size(), 128256);
  EXPECT_TRUE(model.gated());
  EXPECT_FALSE(model.tied_embeddings());
  EXPECT_EQ(request.data_type(), v1::DATA_TYPE_BFLOAT16);
}

TEST(ModelConfigTest, Gpt2SaysItInOtherWords) {
  const v1::PlanMemoryRequest request = Read(
      R"({"model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 1600, "n_head": 25, "n_layer": 48, "n_inner": null,
          "vocab_size": 50257})");
  EXPECT_EQ(request.model().layers(), 48);
  EXPECT_EQ(request.model().query_heads(), 25);
  EXPECT_EQ(request.model().intermediate_size(), 0);
  EXPECT_FALSE(request.model().gated());
  EXPECT_TRUE(request.model().tied_embeddings());
  EXPECT_EQ(request.data_type(), v1::DATA_TYPE_UNSPECIFIED);
}

TEST(ModelConfigTest, Experts) {
  const v1::PlanMemoryRequest request = Read(
      R"({"model_type": "mixtral", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
          "num_local_experts": 8, "num_experts_per_tok": 2})");
  EXPECT_EQ(request.model().experts(), 8);
  EXPECT_EQ(request.model().experts_per_token(), 2);
}

TEST(ModelConfigTest, WhatIsNoConfigIsAUsageError) {
  for (const char* const json : {"", "[]", "{", "3", R"({"hidden_size": 4096, "num_hidden_layers": 2})",
                                 R"({"hidden_size": "big", "num_hidden_layers": 2, "num_attention_heads": 2})",
                                 R"({"hidden_size": 1e300, "num_hidden_layers": 2, "num_attention_heads": 2})",
                                 R"({"hidden_size": -4, "num_hidden_layers": 2, "num_attention_heads": 2})"}) {
    v1::PlanMemoryRequest request;
    const absl::Status status = ReadModelConfig("my.json", json, request);
    EXPECT_TRUE(IsUsageError(status)) << json;
    EXPECT_THAT(std::string(status.message()), HasSubstr("my.json")) << json;
  }
}

TEST(ModelWordsTest, SetWhatTheyName) {
  v1::ModelGeometry model;
  model.set_layers(5);
  EXPECT_OK(ReadModelWords("hidden=1024,heads=16,parameters=7e9,gated", model));
  EXPECT_EQ(model.layers(), 5);
  EXPECT_EQ(model.hidden_size(), 1024);
  EXPECT_EQ(model.parameters(), 7'000'000'000);
  EXPECT_TRUE(model.gated());
  EXPECT_FALSE(model.tied_embeddings());
  for (const char* const words :
       {"hiden=3", "hidden", "hidden=", "hidden=-1", "hidden=1.5", "hidden=nan", "gated=1", "layers=1e99"}) {
    EXPECT_TRUE(IsUsageError(ReadModelWords(words, model))) << words;
  }
}

TEST(ShardingWordsTest, SetWhatTheyName) {
  v1::Sharding sharding;
  EXPECT_OK(ReadShardingWords("data=8,zero=3,sequence", sharding));
  EXPECT_EQ(sharding.data_parallel(), 8);
  EXPECT_EQ(sharding.zero_stage(), v1::ZERO_STAGE_WEIGHTS);
  EXPECT_TRUE(sharding.sequence_parallel());
  EXPECT_OK(ReadShardingWords("", sharding));
  EXPECT_TRUE(IsUsageError(ReadShardingWords("zero=4", sharding)));
}

}  // namespace
}  // namespace ridgeline::cli
