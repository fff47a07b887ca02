// `ridgeline attend`
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/arguments.h"
#include "client/cli/attention_flags.h"
#include "client/cli/cache_names.h"
#include "client/cli/commands.h"
#include "client/cli/measurement.h"
#include "client/cli/report.h"
#include "client/cli/tensor_file.h"
#include "client/cpp/npy.h"
#include "client/cpp/tensor_io.h"

ABSL_FLAG(std::string, query, "",
          "Queries: a .npy file, [batch, tokens, heads, head_dim], or ragged [tokens, heads, head_dim].");
ABSL_FLAG(std::string, key, "", "Keys: a .npy file, [batch, tokens, kv_heads, head_dim], or ragged.");
ABSL_FLAG(std::string, value, "", "Values: a .npy file, [batch, tokens, kv_heads, value_head_dim], or ragged.");
ABSL_FLAG(std::string, random, "",
          "Instead of files: random tensors, made by the device, of batch, tokens, heads and head dimension (B,S,H,D) or of "
          "batch, query tokens, key tokens, query heads, key-value heads and head dimension (B,Sq,Sk,Hq,Hkv,D).");
ABSL_FLAG(std::string, query_lengths, "", "Ragged queries: tokens of each sequence, separated by commas.");
ABSL_FLAG(std::string, key_lengths, "",
          "Ragged keys: tokens of each sequence. Dense keys: the valid tokens of each batch row.");
ABSL_FLAG(
    std::string, sequence, "",
    "Attend over these sequences of a KV cache (chat/a), one for each batch row, separated by commas. --key and --value are "
    "then appended first, and may be left out; --random appends as many tokens as it has queries.");
ABSL_FLAG(std::int32_t, layer, 0, "The layer of the KV cache, from 0.");
ABSL_FLAG(bool, append, true, "With --sequence and --random: append. --noappend: only attend.");
ABSL_FLAG(std::string, bias, "",
          "attend: added to the scaled logits: a .npy file, [1 or batch, 1 or heads, query tokens, key tokens]; -inf hides a "
          "key. fuse: added to each row, [row elements].");
ABSL_FLAG(std::string, alibi_slopes, "",
          "ALiBi slopes, one for each query head: numbers, separated by commas, or a .npy file. A logit loses its head's slope "
          "times the distance of query and key.");
ABSL_FLAG(std::string, sink_logits, "",
          "Sink logits, one for each query head, likewise: they join the softmax's denominator only. -inf: no sink for that "
          "head.");
ABSL_FLAG(std::string, output, "",
          "Write the result to this file: attend and fuse the output, as .npy (what nobody asks for is not sent back); report "
          "its page, by default report.html; trace its timeline, as JSON.");
ABSL_FLAG(std::string, log_sum_exp, "", "Write the log-sum-exp of each row's logits to this .npy file.");
ABSL_FLAG(std::string, expect, "",
          "A .npy file with the right output: exit status 1 if the answer is further away than --tolerance.");
ABSL_FLAG(std::string, expect_log_sum_exp, "", "As --expect, for the log-sum-exp.");
ABSL_FLAG(double, tolerance, 1e-4, "Largest absolute difference that --expect and --expect_log_sum_exp allow.");

namespace ridgeline::cli {
namespace {

// One number for each query head.
absl::StatusOr<v1::Tensor> TensorFromList(absl::string_view flag, const std::string& text) {
  const absl::StatusOr<std::vector<float>> numbers = ParseNumbers(flag, text);
  if (!numbers.ok()) return numbers.status();
  const std::string bytes(reinterpret_cast<const char*>(numbers->data()), numbers->size() * sizeof(float));
  return client::ToTensor({client::ElementType::kFloat32, {static_cast<std::int64_t>(numbers->size())}, bytes});
}

// --bias, --alibi_slopes and --sink_logits, where they are given.
absl::Status SetLogitTensors(v1::AttentionOptions& options) {
  struct Input {
    const char* flag;
    std::string text;
    bool may_be_list;
    v1::Tensor* (v1::AttentionOptions::*mutable_tensor)();
  };
  const Input inputs[] = {
      {"bias", absl::GetFlag(FLAGS_bias), false, &v1::AttentionOptions::mutable_bias},
      {"alibi_slopes", absl::GetFlag(FLAGS_alibi_slopes), true, &v1::AttentionOptions::mutable_alibi_slopes},
      {"sink_logits", absl::GetFlag(FLAGS_sink_logits), true, &v1::AttentionOptions::mutable_sink_logits},
  };
  for (const Input& input : inputs) {
    if (input.text.empty()) continue;
    const bool is_list = input.may_be_list && !absl::EndsWith(input.text, ".npy");
    absl::StatusOr<v1::Tensor> read =
        is_list ? TensorFromList(input.flag, input.text) : TensorFromFile(input.text, v1::DATA_TYPE_FLOAT32);
    if (!read.ok()) return read.status();
    *(options.*input.mutable_tensor)() = *std::move(read);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::AttendRequest> RequestFromFiles(v1::DataType type, bool is_paged) {
  v1::AttendRequest request;
  const std::string key = absl::GetFlag(FLAGS_key);
  const std::string value = absl::GetFlag(FLAGS_value);
  std::vector<std::pair<std::string, v1::Tensor*>> inputs = {{absl::GetFlag(FLAGS_query), request.mutable_query()}};
  if (!is_paged) {
    inputs.emplace_back(key, request.mutable_dense()->mutable_key());
    inputs.emplace_back(value, request.mutable_dense()->mutable_value());
  } else if (!key.empty() || !value.empty()) {
    inputs.emplace_back(key, request.mutable_paged()->mutable_new_key());
    inputs.emplace_back(value, request.mutable_paged()->mutable_new_value());
  }
  for (const auto& [path, tensor] : inputs) {
    if (path.empty()) return UsageError("--query, --key and --value are needed, or --random");
    absl::StatusOr<v1::Tensor> read = TensorFromFile(path, type);
    if (!read.ok()) return read.status();
    *tensor = *std::move(read);
  }
  *request.mutable_options() = OptionsFromFlags();
  return request;
}

absl::StatusOr<v1::AttendRequest> RandomRequestFromFlags(v1::DataType type) {
  const bool has_files =
      !absl::GetFlag(FLAGS_query).empty() || !absl::GetFlag(FLAGS_key).empty() || !absl::GetFlag(FLAGS_value).empty();
  if (has_files) return UsageError("--random and files are both given; one of them is needed");
  absl::StatusOr<ProblemShape> shape = ParseProblemShape("random", absl::GetFlag(FLAGS_random));
  if (!shape.ok()) return shape.status();
  OverrideFromFlags(*shape);
  return RandomRequest(*shape, type == v1::DATA_TYPE_UNSPECIFIED ? v1::DATA_TYPE_FLOAT32 : type);
}

// Turns random keys and values that were to be sent into ones that are appended.
void AppendInstead(v1::AttendRequest& request) {
  v1::DenseKeyValue dense = std::move(*request.mutable_dense());
  v1::PagedKeyValue& paged = *request.mutable_paged();
  if (!absl::GetFlag(FLAGS_append)) return;
  const std::int64_t query_tokens = request.query().shape(1);
  *paged.mutable_new_key() = std::move(*dense.mutable_key());
  *paged.mutable_new_value() = std::move(*dense.mutable_value());
  paged.mutable_new_key()->set_shape(1, query_tokens);
  paged.mutable_new_value()->set_shape(1, query_tokens);
}

absl::Status SetSequences(v1::PagedKeyValue& paged) {
  for (const absl::string_view text : absl::StrSplit(absl::GetFlag(FLAGS_sequence), ',')) {
    const absl::StatusOr<CacheName> name = ParseCacheName(text);
    if (!name.ok()) return name.status();
    if (!name->is_sequence) return UsageError(absl::StrCat(name->cache(), " is a cache; --sequence needs sequences (chat/a)"));
    paged.add_sequences(name->sequence());
  }
  paged.set_layer(absl::GetFlag(FLAGS_layer));
  return absl::OkStatus();
}

absl::StatusOr<v1::AttendRequest> RequestFromFlags() {
  const absl::StatusOr<v1::DataType> type = DataTypeFromFlags();
  if (!type.ok()) return type.status();
  const absl::StatusOr<v1::Algorithm> algorithm = AlgorithmFromFlags();
  if (!algorithm.ok()) return algorithm.status();
  const auto query_lengths = ParseIntegers("query_lengths", absl::GetFlag(FLAGS_query_lengths), /*minimum=*/0);
  if (!query_lengths.ok()) return query_lengths.status();
  const auto key_lengths = ParseIntegers("key_lengths", absl::GetFlag(FLAGS_key_lengths), /*minimum=*/0);
  if (!key_lengths.ok()) return key_lengths.status();

  const bool is_paged = !absl::GetFlag(FLAGS_sequence).empty();
  const bool is_random = !absl::GetFlag(FLAGS_random).empty();
  absl::StatusOr<v1::AttendRequest> request = is_random ? RandomRequestFromFlags(*type) : RequestFromFiles(*type, is_paged);
  if (!request.ok()) return request.status();
  if (is_paged) {
    if (is_random) AppendInstead(*request);
    if (absl::Status status = SetSequences(*request->mutable_paged()); !status.ok()) return status;
    if (!key_lengths->empty()) return UsageError("--key_lengths is for keys that are sent; --sequence has its own");
  } else {
    request->mutable_dense()->mutable_lengths()->Add(key_lengths->begin(), key_lengths->end());
  }
  const absl::Status logits = SetLogitTensors(*request->mutable_options());
  if (!logits.ok()) return logits;
  request->mutable_options()->set_algorithm(*algorithm);
  request->mutable_query_lengths()->Add(query_lengths->begin(), query_lengths->end());
  const bool wants_output = !absl::GetFlag(FLAGS_output).empty() || !absl::GetFlag(FLAGS_expect).empty();
  const bool wants_log_sum_exp = !absl::GetFlag(FLAGS_log_sum_exp).empty() || !absl::GetFlag(FLAGS_expect_log_sum_exp).empty();
  request->mutable_output()->set_log_sum_exp(wants_log_sum_exp);
  request->mutable_output()->set_discard(!wants_output && !wants_log_sum_exp);
  return request;
}

Section ProblemSection(const v1::AttendRequest& request) {
  const auto shape = [](const v1::Tensor& tensor) {
    if (tensor.shape().empty()) return Value();  // nothing is appended
    return Value(std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end()));
  };
  const bool is_paged = request.has_paged();
  Section section{
      "Attention",
      {{"data_type", "elements", DataTypeName(request.query().data_type())},
       {"query_shape", "query", shape(request.query())},
       {"key_shape", is_paged ? "new key" : "key", shape(is_paged ? request.paged().new_key() : request.dense().key())},
       {"value_shape", is_paged ? "new value" : "value",
        shape(is_paged ? request.paged().new_value() : request.dense().value())},
       {"mask", "mask", MaskText(request.options())}}};
  if (is_paged) section.fields.push_back({"sequences", "over", absl::StrJoin(request.paged().sequences(), ", ")});
  return section;
}

// One tensor of the answer: where to write it, and what it should be; both may be empty.
struct Answer {
  std::string name;  // as its flag and keys have it
  std::string label;
  std::string write_path;
  std::string expect_path;
};

// Writes the tensor and compares it. A difference above the tolerance is a complaint.
absl::Status Judge(const Answer& answer, v1::Tensor tensor, Result& result) {
  if (answer.write_path.empty() && answer.expect_path.empty()) return absl::OkStatus();
  const absl::StatusOr<client::Array> got = client::FromTensor(std::move(tensor));
  if (!got.ok()) return got.status();
  if (!answer.write_path.empty()) {
    absl::Status status = client::WriteNpy(answer.write_path, *got);
    if (!status.ok()) return status;
    result.document.notes.push_back(absl::StrCat(answer.label, " written to ", answer.write_path));
  }
  if (answer.expect_path.empty()) return absl::OkStatus();

  const absl::StatusOr<client::Array> want = client::ReadNpy(answer.expect_path);
  if (!want.ok()) return want.status();
  const absl::StatusOr<client::Difference> difference = client::LargestDifference(*got, *want);
  if (!difference.ok()) {
    return absl::Status(difference.status().code(), absl::StrCat(answer.expect_path, ": ", difference.status().message()));
  }
  const double tolerance = absl::GetFlag(FLAGS_tolerance);
  const bool within = difference->max_abs <= tolerance;
  Value error(difference->max_abs);
  error.tone = within ? Tone::kGood : Tone::kBad;
  result.document.sections.push_back({absl::StrCat("Expected ", answer.label),
                                      {{absl::StrCat(answer.name, "_max_abs_error"), "largest error", error},
                                       {absl::StrCat(answer.name, "_tolerance"), "tolerance", tolerance},
                                       {absl::StrCat(answer.name, "_within_tolerance"), "within tolerance", within}}});
  if (!within) {
    absl::StrAppendFormat(&result.complaint, "%s%s differs from %s by %g at element %d (%g against %g); the tolerance is %g",
                          result.complaint.empty() ? "" : "; ", answer.label, answer.expect_path, difference->max_abs,
                          difference->element_idx, difference->got, difference->want, tolerance);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Result> RunAttend(const client::Client& client) {
  const absl::StatusOr<int> num_runs = RunsFromFlags(/*default_runs=*/1);
  if (!num_runs.ok()) return num_runs.status();
  const absl::StatusOr<v1::AttendRequest> request = RequestFromFlags();
  if (!request.ok()) return request.status();
  if (request->paged().has_new_key() && *num_runs > 1) {
    return UsageError("--repeat would append again and again; --noappend attends over what is there");
  }
  absl::StatusOr<Measurement> measurement = Measure(client, *request, *num_runs);
  if (!measurement.ok()) return measurement.status();

  Result result;
  result.document.sections.push_back(ProblemSection(*request));
  AppendReport(result.document, *measurement, *num_runs);
  const Answer output{"output", "output", absl::GetFlag(FLAGS_output), absl::GetFlag(FLAGS_expect)};
  const Answer log_sum_exp{"log_sum_exp", "log-sum-exp", absl::GetFlag(FLAGS_log_sum_exp),
                           absl::GetFlag(FLAGS_expect_log_sum_exp)};
  absl::Status status = Judge(output, std::move(*measurement->first.mutable_output()), result);
  if (status.ok()) status = Judge(log_sum_exp, std::move(*measurement->first.mutable_log_sum_exp()), result);
  if (!status.ok()) return status;
  return result;
}

}  // namespace ridgeline::cli
