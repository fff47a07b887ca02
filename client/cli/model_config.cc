#include "client/cli/model_config.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "client/cli/arguments.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

namespace ridgeline::cli {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

const Value* Find(const Struct& config, std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    const auto found = config.fields().find(name);
    if (found != config.fields().end() && found->second.kind_case() != Value::kNullValue) return &found->second;
  }
  return nullptr;
}

// 0 where it is missing or no count.
std::int64_t Count(const Struct& config, std::initializer_list<const char*> names) {
  const Value* const value = Find(config, names);
  if (value == nullptr || value->kind_case() != Value::kNumberValue) return 0;
  const double number = value->number_value();
  return number >= 1 && number <= 1e15 && number == std::floor(number) ? static_cast<std::int64_t>(number) : 0;
}

std::string Text(const Struct& config, std::initializer_list<const char*> names) {
  const Value* const value = Find(config, names);
  return value != nullptr ? value->string_value() : "";
}

// Families whose feed-forward network has a gate whatever its activation is called, and those that have none.
bool HasGate(const Struct& config) {
  const std::string family = Text(config, {"model_type"});
  for (const char* const gated :
       {"llama", "mistral", "mixtral", "qwen", "gemma", "phi3", "deepseek", "olmo", "granite", "glm"}) {
    if (absl::StartsWith(family, gated)) return true;
  }
  const std::string activation = Text(config, {"hidden_act", "hidden_activation", "activation_function"});
  return activation == "silu" || activation == "swish" || activation == "swiglu" || activation == "geglu";
}

// GPT-2 and its like say nothing of it, and share.
bool TiesEmbeddings(const Struct& config) {
  const Value* const tied = Find(config, {"tie_word_embeddings"});
  if (tied != nullptr) return tied->bool_value();
  const std::string family = Text(config, {"model_type"});
  return family == "gpt2" || absl::StartsWith(family, "gemma") || family == "opt";
}

v1::DataType TypeOf(const Struct& config) {
  const std::string name = Text(config, {"torch_dtype", "dtype"});
  if (name == "float32") return v1::DATA_TYPE_FLOAT32;
  if (name == "float16") return v1::DATA_TYPE_FLOAT16;
  return name == "bfloat16" ? v1::DATA_TYPE_BFLOAT16 : v1::DATA_TYPE_UNSPECIFIED;
}

// Where a word's number goes.
using Target = std::pair<const char*, std::function<void(std::int64_t)>>;
// What a word switches on.
using Switch = std::pair<const char*, std::function<void()>>;

std::optional<std::int64_t> ParseCount(absl::string_view text) {
  double number = 0;  // "7e9" is a count
  if (!absl::SimpleAtod(text, &number) || !(number >= 0) || number > 1e18 || number != std::floor(number)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

absl::Status ReadWords(absl::string_view flag, absl::string_view words, absl::Span<const Target> targets,
                       absl::Span<const Switch> switches) {
  std::vector<std::string> names;
  for (const Target& target : targets) names.push_back(absl::StrCat(target.first, "=N"));
  for (const Switch& each : switches) names.push_back(each.first);
  for (const absl::string_view word : absl::StrSplit(words, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
    bool is_known = false;
    for (const Target& target : targets) {
      if (parts.first != target.first) continue;
      const std::optional<std::int64_t> count = ParseCount(parts.second);
      if (!count.has_value()) return UsageError(absl::StrCat("--", flag, ": '", word, "' has no count"));
      target.second(*count);
      is_known = true;
    }
    for (const Switch& each : switches) {
      if (word != each.first) continue;
      each.second();
      is_known = true;
    }
    if (!is_known) {
      return UsageError(absl::StrCat("--", flag, ": '", word, "' is not one of ", absl::StrJoin(names, ", ")));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadModelConfig(const std::string& path, absl::string_view json, v1::PlanMemoryRequest& request) {
  Struct config;
  const auto parsed = google::protobuf::util::JsonStringToMessage(std::string(json), &config);
  if (!parsed.ok()) return UsageError(absl::StrCat(path, " is not a JSON object"));
  v1::ModelGeometry& model = *request.mutable_model();
  model.set_layers(Count(config, {"num_hidden_layers", "n_layer", "num_layers", "n_layers"}));
  model.set_hidden_size(Count(config, {"hidden_size", "n_embd", "d_model", "dim"}));
  model.set_query_heads(Count(config, {"num_attention_heads", "n_head", "n_heads"}));
  for (const auto& [what, value] :
       {std::pair("num_hidden_layers", model.layers()), std::pair("hidden_size", model.hidden_size()),
        std::pair("num_attention_heads", model.query_heads())}) {
    if (value == 0) return UsageError(absl::StrCat(path, " has no ", what));
  }
  model.set_kv_heads(Count(config, {"num_key_value_heads", "num_kv_heads", "n_kv_heads"}));
  model.set_head_dim(Count(config, {"head_dim"}));
  model.set_intermediate_size(Count(config, {"moe_intermediate_size", "intermediate_size", "n_inner", "ffn_dim"}));
  model.set_vocabulary_size(Count(config, {"vocab_size"}));
  model.set_experts(Count(config, {"num_local_experts", "num_experts", "n_routed_experts"}));
  model.set_experts_per_token(Count(config, {"num_experts_per_tok"}));
  model.set_gated(HasGate(config));
  model.set_tied_embeddings(TiesEmbeddings(config));
  request.set_data_type(TypeOf(config));
  return absl::OkStatus();
}

absl::Status ReadModelWords(absl::string_view words, v1::ModelGeometry& model) {
  const Target targets[] = {{"layers", [&](std::int64_t n) { model.set_layers(n); }},
                            {"hidden", [&](std::int64_t n) { model.set_hidden_size(n); }},
                            {"heads", [&](std::int64_t n) { model.set_query_heads(n); }},
                            {"kv_heads", [&](std::int64_t n) { model.set_kv_heads(n); }},
                            {"head_dim", [&](std::int64_t n) { model.set_head_dim(n); }},
                            {"intermediate", [&](std::int64_t n) { model.set_intermediate_size(n); }},
                            {"vocabulary", [&](std::int64_t n) { model.set_vocabulary_size(n); }},
                            {"experts", [&](std::int64_t n) { model.set_experts(n); }},
                            {"experts_per_token", [&](std::int64_t n) { model.set_experts_per_token(n); }},
                            {"parameters", [&](std::int64_t n) { model.set_parameters(n); }}};
  const Switch switches[] = {{"gated", [&] { model.set_gated(true); }}, {"tied", [&] { model.set_tied_embeddings(true); }}};
  return ReadWords("model", words, targets, switches);
}

absl::Status ReadShardingWords(absl::string_view words, v1::Sharding& sharding) {
  std::int64_t zero_stage = sharding.zero_stage();
  const Target targets[] = {{"data", [&](std::int64_t n) { sharding.set_data_parallel(n); }},
                            {"tensor", [&](std::int64_t n) { sharding.set_tensor_parallel(n); }},
                            {"pipeline", [&](std::int64_t n) { sharding.set_pipeline_parallel(n); }},
                            {"zero", [&](std::int64_t n) { zero_stage = n; }}};
  const Switch switches[] = {{"sequence", [&] { sharding.set_sequence_parallel(true); }}};
  absl::Status status = ReadWords("sharding", words, targets, switches);
  if (!status.ok()) return status;
  if (zero_stage > 3) return UsageError(absl::StrCat("--sharding: zero is ", zero_stage, "; 0 to 3 are allowed"));
  sharding.set_zero_stage(static_cast<v1::ZeroStage>(zero_stage));
  return absl::OkStatus();
}

}  // namespace ridgeline::cli
