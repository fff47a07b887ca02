// `ridgeline compare`
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "client/cli/arguments.h"
#include "client/cli/attention_flags.h"
#include "client/cli/commands.h"
#include "client/cli/measurement.h"
#include "client/cli/progress.h"
#include "client/cli/report.h"
#include "client/cli/units.h"
#include "client/cpp/error.h"
#include "client/cpp/tensor_io.h"

ABSL_FLAG(std::string, lengths, "128,256,512,1024,2048,4096", "Tokens of queries and keys, one comparison each.");
ABSL_FLAG(std::int64_t, batch, 1, "Batch rows.");
ABSL_FLAG(std::int64_t, heads, 8, "Query heads.");
ABSL_FLAG(std::int64_t, head_dim, 64, "Head dimension.");

namespace ridgeline::cli {
namespace {

// What to compare, from the flags.
struct Comparison {
  std::vector<std::int64_t> lengths;
  ProblemShape shape;  // but for the lengths
  v1::DataType type = v1::DATA_TYPE_FLOAT32;
  int num_runs = 1;
};

absl::StatusOr<Comparison> ComparisonFromFlags() {
  const absl::StatusOr<int> num_runs = RunsFromFlags(/*default_runs=*/5);
  if (!num_runs.ok()) return num_runs.status();
  const absl::StatusOr<v1::DataType> type = DataTypeFromFlags();
  if (!type.ok()) return type.status();
  absl::StatusOr<std::vector<std::int64_t>> lengths = ParseIntegers("lengths", absl::GetFlag(FLAGS_lengths), /*minimum=*/1);
  if (!lengths.ok()) return lengths.status();
  if (lengths->empty()) return UsageError("--lengths is empty; at least one is needed");

  Comparison comparison;
  comparison.lengths = *std::move(lengths);
  comparison.num_runs = *num_runs;
  if (*type != v1::DATA_TYPE_UNSPECIFIED) comparison.type = *type;
  ProblemShape& shape = comparison.shape;
  shape.batch = absl::GetFlag(FLAGS_batch);
  shape.query_heads = shape.kv_heads = absl::GetFlag(FLAGS_heads);
  shape.head_dim = shape.value_head_dim = absl::GetFlag(FLAGS_head_dim);
  OverrideFromFlags(shape);
  return comparison;
}

// One algorithm on one length: what was measured, or why the server refused it.
struct Entry {
  std::int64_t tokens = 0;
  v1::Algorithm algorithm = v1::ALGORITHM_UNSPECIFIED;
  std::optional<Measurement> measurement;
  absl::Status refusal;
};

// The answer of a first call, which also warms up, then the timing of `num_runs` calls that return nothing. A refusal for want
// of memory is an entry like any other; every other error ends the comparison.
absl::StatusOr<Entry> MeasureEntry(const client::Client& client, v1::AttendRequest request, int num_runs) {
  Entry entry;
  entry.tokens = request.query().shape(1);
  entry.algorithm = request.options().algorithm();
  absl::StatusOr<v1::AttendResponse> answer = client.Attend(request);
  if (absl::IsResourceExhausted(answer.status())) {
    entry.refusal = answer.status();
    return entry;
  }
  if (!answer.ok()) return answer.status();
  request.mutable_output()->set_discard(true);
  absl::StatusOr<Measurement> measurement = Measure(client, request, num_runs);
  if (!measurement.ok()) return measurement.status();
  entry.measurement = *std::move(measurement);
  entry.measurement->first = *std::move(answer);
  return entry;
}

absl::StatusOr<Value> DifferenceValue(const Entry& standard, const Entry& flash) {
  const absl::StatusOr<client::Array> standard_output = client::FromTensor(standard.measurement->first.output());
  if (!standard_output.ok()) return standard_output.status();
  const absl::StatusOr<client::Array> flash_output = client::FromTensor(flash.measurement->first.output());
  if (!flash_output.ok()) return flash_output.status();
  const absl::StatusOr<client::Difference> difference = client::LargestDifference(*flash_output, *standard_output);
  if (!difference.ok()) return difference.status();
  return Value(difference->max_abs);
}

std::vector<Column> Columns() {
  return {{"tokens", "tokens", /*groups=*/true},
          {"algorithm", "algorithm"},
          {"kernel_time_seconds", "kernel time"},
          {"workspace_bytes", "workspace"},
          {"bytes_per_second", "bandwidth"},
          {"flops_per_second", "arithmetic"},
          {"bound", "bound by"},
          {"roof_fraction", "of roof"},
          {"speed_up", "speed-up"},
          {"max_abs_difference", "difference"},
          {"round_trip_seconds", ""},
          {"arithmetic_intensity_flops_per_byte", ""},
          {"kernel", ""},
          {"error", ""}};
}

// The values of Columns().
std::vector<Value> RowOf(const Entry& entry, Value speed_up, Value difference) {
  if (!entry.measurement.has_value()) {
    return {entry.tokens,
            AlgorithmName(entry.algorithm),
            Value::Missing("refused", Tone::kBad),
            {},
            {},
            {},
            {},
            {},
            std::move(speed_up),
            std::move(difference),
            {},
            {},
            {},
            client::ErrorString(entry.refusal)};
  }
  const v1::ExecutionReport& report = entry.measurement->report;
  return {entry.tokens,
          AlgorithmName(report.algorithm()),
          {Seconds(report.kernel_time()), Unit::kSeconds},
          {report.workspace_bytes(), Unit::kBytes},
          {report.bytes_per_second(), Unit::kBytesPerSecond},
          {report.flops_per_second(), Unit::kFlopsPerSecond},
          BoundValue(report.bound()),
          RoofFractionValue(report),
          std::move(speed_up),
          std::move(difference),
          {entry.measurement->round_trip_seconds, Unit::kSeconds},
          {report.arithmetic_intensity(), Unit::kFlopsPerByte},
          report.kernel(),
          {}};
}

// Appends the two rows of one length: speed-up and difference stand with flash, for standard is what it is compared with.
absl::Status AppendPair(const Entry& standard, const Entry& flash, Document& document) {
  Value speed_up, difference;
  if (standard.measurement.has_value() && flash.measurement.has_value()) {
    const double factor =
        Seconds(standard.measurement->report.kernel_time()) / Seconds(flash.measurement->report.kernel_time());
    speed_up = Value(factor, Unit::kRatio);
    speed_up.tone = factor >= 1 ? Tone::kGood : Tone::kBad;
    absl::StatusOr<Value> value = DifferenceValue(standard, flash);
    if (!value.ok()) return value.status();
    difference = *std::move(value);
  }
  document.rows->values.push_back(RowOf(standard, Value::Missing(""), Value::Missing("")));
  document.rows->values.push_back(RowOf(flash, std::move(speed_up), std::move(difference)));
  for (const Entry* entry : {&standard, &flash}) {
    if (entry->measurement.has_value()) continue;
    document.notes.push_back(absl::StrCat(FormatCount(entry->tokens), " tokens, ", AlgorithmName(entry->algorithm),
                                          ", refused: ", client::ErrorString(entry->refusal)));
  }
  return absl::OkStatus();
}

// What all rows have in common.
Document DocumentOf(const Comparison& comparison, const std::string& device) {
  const ProblemShape& shape = comparison.shape;
  const std::string type = DataTypeName(comparison.type);
  const std::string mask = MaskText(OptionsFromFlags());
  const std::string value_head_dim =
      shape.value_head_dim == shape.head_dim ? "" : absl::StrCat(" (values ", shape.value_head_dim, ")");
  Document document;
  document.heading = absl::StrCat(device, "\n", type, ", batch ", shape.batch, ", ", shape.query_heads, " query heads, ",
                                  shape.kv_heads, " key-value heads, head dimension ", shape.head_dim, value_head_dim,
                                  ", mask: ", mask, "; medians of ", comparison.num_runs);
  document.sections.push_back({"",
                               {{"device", "", device},
                                {"data_type", "", type},
                                {"batch", "", shape.batch},
                                {"query_heads", "", shape.query_heads},
                                {"kv_heads", "", shape.kv_heads},
                                {"head_dim", "", shape.head_dim},
                                {"value_head_dim", "", shape.value_head_dim},
                                {"mask", "", mask},
                                {"runs", "", std::int64_t{comparison.num_runs}}}});
  document.rows = Rows{"results", Columns(), {}};
  return document;
}

// Measures both algorithms on one length and appends their rows.
absl::Status CompareLength(const client::Client& client, const Comparison& comparison, std::int64_t length, Progress& progress,
                           Document& document) {
  ProblemShape shape = comparison.shape;
  shape.query_tokens = shape.key_tokens = length;
  v1::AttendRequest request = RandomRequest(shape, comparison.type);
  const auto measure = [&](v1::Algorithm algorithm) {
    progress.Show(absl::StrCat(FormatCount(length), " tokens, ", AlgorithmName(algorithm), " …"));
    request.mutable_options()->set_algorithm(algorithm);
    return MeasureEntry(client, request, comparison.num_runs);
  };
  const absl::StatusOr<Entry> standard = measure(v1::ALGORITHM_STANDARD);
  if (!standard.ok()) return standard.status();
  const absl::StatusOr<Entry> flash = measure(v1::ALGORITHM_FLASH);
  if (!flash.ok()) return flash.status();
  return AppendPair(*standard, *flash, document);
}

}  // namespace

absl::StatusOr<Result> RunCompare(const client::Client& client) {
  const absl::StatusOr<Comparison> comparison = ComparisonFromFlags();
  if (!comparison.ok()) return comparison.status();
  const absl::StatusOr<v1::Device> device = client.GetDevice();
  if (!device.ok()) return device.status();

  Result result;
  result.document = DocumentOf(*comparison, device->name());
  Progress progress;
  for (const std::int64_t length : comparison->lengths) {
    result.interruption = CompareLength(client, *comparison, length, progress, result.document);
    if (!result.interruption.ok()) break;
  }
  // What was measured is shown, however the rest went.
  if (result.document.rows->values.empty()) return result.interruption;
  return result;
}

}  // namespace ridgeline::cli
