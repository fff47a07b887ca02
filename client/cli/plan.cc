// `ridgeline plan`
#include <array>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/arguments.h"
#include "client/cli/commands.h"
#include "client/cli/model_config.h"
#include "client/cli/units.h"

ABSL_DECLARE_FLAG(std::string, dtype);
ABSL_DECLARE_FLAG(std::int64_t, batch);
ABSL_FLAG(std::string, config, "", "The model's config.json, as Hugging Face has it.");
ABSL_FLAG(
    std::string, model, "",
    "The model in words, which count more than --config: layers=N, hidden=N, heads=N, kv_heads=N, head_dim=N, intermediate=N, "
    "vocabulary=N, experts=N, experts_per_token=N, parameters=N, gated, tied, separated by commas.");
ABSL_FLAG(std::string, optimizer, "none", "none (the model serves), adam, adam_8bit, sgd_momentum or sgd.");
ABSL_FLAG(std::int64_t, context_tokens, 2048, "Tokens of a sequence.");
ABSL_FLAG(std::string, checkpointing, "none", "Activations that a training step computes again: none, selective or full.");
ABSL_FLAG(std::string, sharding, "",
          "Devices that share the model: data=N, tensor=N, pipeline=N, zero=0..3, sequence, separated by commas.");
ABSL_FLAG(bool, standard_attention, false, "Attention keeps its scores.");
ABSL_FLAG(bool, dropout_masks, false, "A training step drops out, and keeps the masks.");
ABSL_FLAG(std::string, kv_dtype, "", "Type of the KV cache: float32, float16, bfloat16, float8_e4m3 or float8_e5m2.");
ABSL_FLAG(std::int64_t, memory_bytes, 0, "Memory to fit in; 0: what the daemon's allocator may reserve.");

namespace ridgeline::cli {
namespace {

// The word's place in the list, which is its number in the contract's enum.
template <std::size_t kNumWords>
absl::StatusOr<int> ParseWord(absl::string_view flag, absl::string_view word, const std::array<const char*, kNumWords>& words) {
  for (std::size_t i = 0; i < kNumWords; ++i) {
    if (word == words[i]) return static_cast<int>(i);
  }
  return UsageError(absl::StrCat("--", flag, " is '", word, "'; ", absl::StrJoin(words, ", "), " are allowed"));
}

absl::StatusOr<v1::DataType> ParseKvType(const std::string& text) {
  if (text.empty()) return v1::DATA_TYPE_UNSPECIFIED;
  if (text == "float8_e4m3") return v1::DATA_TYPE_FLOAT8_E4M3;
  if (text == "float8_e5m2") return v1::DATA_TYPE_FLOAT8_E5M2;
  return ParseDataType(text);
}

absl::Status ReadModel(v1::PlanMemoryRequest& request) {
  const std::string path = absl::GetFlag(FLAGS_config);
  const std::string words = absl::GetFlag(FLAGS_model);
  if (path.empty() && words.empty())
    return UsageError("which model? --config=config.json or --model=layers=32,hidden=4096,heads=32");
  if (!path.empty()) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return UsageError(absl::StrCat("--config: ", path, " cannot be read"));
    const std::string json{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    absl::Status status = ReadModelConfig(path, json, request);
    if (!status.ok()) return status;
  }
  return ReadModelWords(words, *request.mutable_model());
}

absl::StatusOr<v1::PlanMemoryRequest> RequestFromFlags() {
  constexpr std::array<const char*, 5> kOptimizers = {"none", "adam", "adam_8bit", "sgd_momentum", "sgd"};
  constexpr std::array<const char*, 3> kCheckpointing = {"none", "selective", "full"};
  v1::PlanMemoryRequest request;
  absl::Status status = ReadModel(request);
  if (status.ok()) status = ReadShardingWords(absl::GetFlag(FLAGS_sharding), *request.mutable_sharding());
  if (!status.ok()) return status;
  const auto optimizer = ParseWord("optimizer", absl::GetFlag(FLAGS_optimizer), kOptimizers);
  if (!optimizer.ok()) return optimizer.status();
  const auto checkpointing = ParseWord("checkpointing", absl::GetFlag(FLAGS_checkpointing), kCheckpointing);
  if (!checkpointing.ok()) return checkpointing.status();
  const auto kv_type = ParseKvType(absl::GetFlag(FLAGS_kv_dtype));
  if (!kv_type.ok()) return kv_type.status();
  if (const std::string type = absl::GetFlag(FLAGS_dtype); !type.empty()) {
    const auto data_type = ParseDataType(type);
    if (!data_type.ok()) return data_type.status();
    request.set_data_type(*data_type);
  }
  request.set_optimizer(static_cast<v1::Optimizer>(*optimizer));
  request.set_checkpointing(static_cast<v1::Checkpointing>(*checkpointing));
  request.set_kv_cache_data_type(*kv_type);
  request.set_batch(absl::GetFlag(FLAGS_batch));
  request.set_context_tokens(absl::GetFlag(FLAGS_context_tokens));
  request.set_standard_attention(absl::GetFlag(FLAGS_standard_attention));
  request.set_dropout(absl::GetFlag(FLAGS_dropout_masks));
  request.set_memory_bytes(absl::GetFlag(FLAGS_memory_bytes));
  return request;
}

Rows TermRows(const v1::MemoryPlan& plan) {
  Rows rows{.key = "terms",
            .columns = {{"name", "term"}, {"bytes", "bytes"}, {"share", "share"}, {"formula", "formula"}, {"source", "source"}},
            .values = {}};
  for (const v1::MemoryTerm& term : plan.terms()) {
    const double share = static_cast<double>(term.bytes()) / static_cast<double>(plan.total_bytes());
    rows.values.push_back({term.name(), {term.bytes(), Unit::kBytes}, {share, Unit::kFraction}, term.formula(), term.source()});
  }
  return rows;
}

Section Levers(const v1::MemoryPlan& plan) {
  Section section{"What saves most", {}};
  for (const v1::MemoryLever& lever : plan.levers()) {
    section.fields.push_back({absl::StrCat("saved_bytes:", lever.name()),
                              absl::StrCat(lever.name(), ": ", lever.description()),
                              {lever.saved_bytes(), Unit::kBytes}});
  }
  return section;
}

}  // namespace

absl::StatusOr<Result> RunPlan(const client::Client& client) {
  const absl::StatusOr<v1::PlanMemoryRequest> request = RequestFromFlags();
  if (!request.ok()) return request.status();
  const absl::StatusOr<v1::MemoryPlan> plan = client.PlanMemory(*request);
  if (!plan.ok()) return plan.status();
  Value fits(plan->fits());
  fits.tone = plan->fits() ? Tone::kGood : Tone::kBad;
  Result result;
  result.document.sections.push_back(
      {"One device",
       {{"parameters", "parameters of the model", plan->parameters()},
        {"total_bytes", "takes", {plan->total_bytes(), Unit::kBytes}},
        {"memory_bytes", "of", {plan->memory_bytes(), Unit::kBytes}},
        {"fits", "fits", std::move(fits)},
        {"largest_batch", "largest batch at this context", plan->largest_batch()},
        {"largest_context_tokens", "longest context at this batch", plan->largest_context_tokens()}}});
  result.document.rows = TermRows(*plan);
  if (plan->levers_size() > 0) result.document.sections.push_back(Levers(*plan));
  return result;
}

}  // namespace ridgeline::cli
