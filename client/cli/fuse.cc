// `ridgeline fuse`
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/arguments.h"
#include "client/cli/attention_flags.h"
#include "client/cli/commands.h"
#include "client/cli/fuse_flags.h"
#include "client/cli/measurement.h"
#include "client/cli/progress.h"
#include "client/cli/report.h"
#include "client/cpp/npy.h"
#include "client/cpp/tensor_io.h"

ABSL_FLAG(bool, check, true, "With --mode=both: fetch both answers and compare them. --nocheck: only measure.");
ABSL_FLAG(std::string, sum_output, "", "Write the sum that add_layer_norm and add_rms_norm make to this .npy file.");

// Of `attend`.
ABSL_DECLARE_FLAG(std::string, output);

namespace ridgeline::cli {
namespace {

std::string NamesOf(const google::protobuf::RepeatedPtrField<v1::FusedOpTensor>& tensors) {
  return absl::StrJoin(tensors, ", ", [](std::string* text, const v1::FusedOpTensor& tensor) {
    absl::StrAppend(text, tensor.optional() ? "[" : "", tensor.name(), tensor.optional() ? "]" : "");
  });
}

absl::StatusOr<Result> ListOperations(const client::Client& client) {
  const absl::StatusOr<v1::ListFusedOpsResponse> list = client.ListFusedOps();
  if (!list.ok()) return list.status();
  Result result;
  Document& document = result.document;
  document.rows = Rows{"ops",
                       {{"name", "operation"},
                        {"inputs", "takes"},
                        {"outputs", "gives"},
                        {"unfused_kernel_count", "kernels if unfused"},
                        {"options", ""},
                        {"formula", ""},
                        {"max_row_elements", ""}},
                       {}};
  for (const v1::FusedOp& op : list->ops()) {
    const std::string options =
        absl::StrJoin(op.options(), ", ", [](std::string* text, const v1::FusedOpOption& option) { *text += option.name(); });
    document.rows->values.push_back({op.name(), NamesOf(op.inputs()), NamesOf(op.outputs()),
                                     std::int64_t{op.unfused_kernel_count()}, options, op.formula(), op.max_row_elements()});
    document.notes.push_back(absl::StrCat(op.name(), ": ", op.formula()));
  }
  return result;
}

// What to do, from the flags.
struct Plan {
  v1::FuseRequest request;
  std::vector<v1::ExecutionMode> modes;
  int num_runs = 1;
  bool wants_answers = false;
};

absl::StatusOr<Plan> PlanFromFlags() {
  Plan plan;
  absl::StatusOr<std::vector<v1::ExecutionMode>> modes = ModesFromFlags();
  if (!modes.ok()) return modes.status();
  absl::StatusOr<v1::FuseRequest> request = FuseRequestFromFlags();
  if (!request.ok()) return request.status();
  const bool appends = request->has_rope_append();
  const absl::StatusOr<int> num_runs = RunsFromFlags(/*default_runs=*/appends ? 1 : 5);
  if (!num_runs.ok()) return num_runs.status();
  if (appends && (*num_runs > 1 || modes->size() > 1)) {
    return UsageError(
        "rope_append would append again and again; --mode=fused or --mode=unfused, without --repeat, does it once");
  }
  plan.wants_answers = !absl::GetFlag(FLAGS_output).empty() || !absl::GetFlag(FLAGS_sum_output).empty() ||
                       (absl::GetFlag(FLAGS_check) && modes->size() > 1);
  plan.request = *std::move(request);
  plan.modes = *std::move(modes);
  plan.num_runs = *num_runs;
  return plan;
}

struct Entry {
  v1::ExecutionMode mode;
  FuseMeasurement measurement;  // `first` has the outputs, where they are wanted
};

// A first call, which also warms up and fetches the answer, then the timing of calls that return nothing. What appends is
// called once.
absl::StatusOr<Entry> MeasureMode(const client::Client& client, const Plan& plan, v1::ExecutionMode mode) {
  v1::FuseRequest request = plan.request;
  request.set_mode(mode);
  request.mutable_output()->set_discard(!plan.wants_answers);
  absl::StatusOr<FuseMeasurement> first = Measure(client, request, /*num_runs=*/1);
  if (!first.ok()) return first.status();
  if (request.has_rope_append()) return Entry{mode, *std::move(first)};
  request.mutable_output()->set_discard(true);
  absl::StatusOr<FuseMeasurement> measurement = Measure(client, request, plan.num_runs);
  if (!measurement.ok()) return measurement.status();
  measurement->first = std::move(first->first);
  return Entry{mode, *std::move(measurement)};
}

// The largest over all outputs that have elements of a floating-point type.
absl::StatusOr<Value> DifferenceValue(const v1::FuseResponse& a, const v1::FuseResponse& b) {
  double max_abs = 0;
  for (int i = 0; i < a.outputs_size() && i < b.outputs_size(); ++i) {
    const absl::StatusOr<client::Array> one = client::FromTensor(a.outputs(i));
    if (!one.ok()) return one.status();
    const absl::StatusOr<client::Array> other = client::FromTensor(b.outputs(i));
    if (!other.ok()) return other.status();
    const absl::StatusOr<client::Difference> difference = client::LargestDifference(*one, *other);
    if (!difference.ok()) return difference.status();
    max_abs = std::max(max_abs, difference->max_abs);
  }
  return Value(max_abs);
}

std::vector<Column> Columns() {
  return {{"mode", "mode"},
          {"kernel_count", "kernels"},
          {"bytes", "bytes moved"},
          {"kernel_time_seconds", "kernel time"},
          {"bytes_per_second", "bandwidth"},
          {"roof_fraction", "of roof"},
          {"speed_up", "speed-up"},
          {"max_abs_difference", "difference"},
          {"workspace_bytes", "workspace"},
          {"min_kernel_time_seconds", ""},
          {"max_kernel_time_seconds", ""},
          {"flops", ""},
          {"flops_per_second", ""},
          {"arithmetic_intensity_flops_per_byte", ""},
          {"bound", ""},
          {"queue_time_seconds", ""},
          {"upload_time_seconds", ""},
          {"download_time_seconds", ""},
          {"round_trip_seconds", ""},
          {"kernel", ""}};
}

// The values of Columns().
std::vector<Value> RowOf(const Entry& entry, Value speed_up, Value difference) {
  const FuseMeasurement& measurement = entry.measurement;
  const v1::ExecutionReport& report = measurement.report;
  return {ModeName(entry.mode),
          std::int64_t{measurement.first.kernel_count()},
          {report.bytes(), Unit::kBytes},
          {Seconds(report.kernel_time()), Unit::kSeconds},
          {report.bytes_per_second(), Unit::kBytesPerSecond},
          RoofFractionValue(report),
          std::move(speed_up),
          std::move(difference),
          {report.workspace_bytes(), Unit::kBytes},
          {measurement.min_kernel_seconds, Unit::kSeconds},
          {measurement.max_kernel_seconds, Unit::kSeconds},
          {report.flops(), Unit::kFlops},
          {report.flops_per_second(), Unit::kFlopsPerSecond},
          {report.arithmetic_intensity(), Unit::kFlopsPerByte},
          BoundValue(report.bound()),
          {Seconds(report.queue_time()), Unit::kSeconds},
          {Seconds(report.upload_time()), Unit::kSeconds},
          {Seconds(report.download_time()), Unit::kSeconds},
          {measurement.round_trip_seconds, Unit::kSeconds},
          report.kernel()};
}

// Unfused comes first: it is what fused is compared with.
absl::Status AppendRows(const Plan& plan, const std::vector<Entry>& entries, Document& document) {
  document.rows = Rows{"results", Columns(), {}};
  for (std::size_t i = 0; i < entries.size(); ++i) {
    Value speed_up = Value::Missing(""), difference = Value::Missing("");
    if (i > 0) {
      const double fused_seconds = Seconds(entries[i].measurement.report.kernel_time());
      const double factor = Seconds(entries[0].measurement.report.kernel_time()) / fused_seconds;
      speed_up = fused_seconds > 0 ? Value(factor, Unit::kRatio) : Value();
      speed_up.tone = factor >= 1 ? Tone::kGood : Tone::kBad;
      if (plan.wants_answers) {
        absl::StatusOr<Value> value = DifferenceValue(entries[0].measurement.first, entries[i].measurement.first);
        if (!value.ok()) return value.status();
        difference = *std::move(value);
      }
    }
    document.rows->values.push_back(RowOf(entries[i], std::move(speed_up), std::move(difference)));
  }
  return absl::OkStatus();
}

// What all rows have in common.
Document DocumentOf(const Plan& plan, const Entry& entry) {
  const v1::Tensor& input = MainTensor(plan.request);
  const std::vector<std::int64_t> shape(input.shape().begin(), input.shape().end());
  const std::string op = absl::GetFlag(FLAGS_op);
  const std::string type = DataTypeName(input.data_type());
  const std::string device = entry.measurement.report.device();
  Document document;
  document.heading = absl::StrCat(device, "\n", op, " of ", client::ShapeString(shape), ", ", type, "; medians of ",
                                  plan.num_runs, plan.num_runs == 1 ? " run" : " runs");
  document.sections.push_back({"",
                               {{"device", "", device},
                                {"op", "", op},
                                {"shape", "", shape},
                                {"data_type", "", type},
                                {"runs", "", std::int64_t{plan.num_runs}}}});
  return document;
}

absl::Status WriteOutput(const v1::FuseResponse& response, int index, const std::string& flag, const std::string& path,
                         Document& document) {
  if (path.empty()) return absl::OkStatus();
  if (index >= response.outputs_size()) return UsageError(absl::StrCat("--", flag, ": this operation has no such output"));
  const absl::StatusOr<client::Array> array = client::FromTensor(response.outputs(index));
  if (!array.ok()) return array.status();
  const absl::Status status = client::WriteNpy(path, *array);
  if (status.ok()) document.notes.push_back(absl::StrCat(index == 0 ? "output" : "sum", " written to ", path));
  return status;
}

}  // namespace

absl::StatusOr<Result> RunFuse(const client::Client& client) {
  if (absl::GetFlag(FLAGS_op).empty()) return ListOperations(client);
  const absl::StatusOr<Plan> plan = PlanFromFlags();
  if (!plan.ok()) return plan.status();
  std::vector<Entry> entries;
  {
    Progress progress;
    for (const v1::ExecutionMode mode : plan->modes) {
      progress.Show(absl::StrCat(absl::GetFlag(FLAGS_op), ", ", ModeName(mode), " …"));
      absl::StatusOr<Entry> entry = MeasureMode(client, *plan, mode);
      if (!entry.ok()) return entry.status();
      entries.push_back(*std::move(entry));
    }
  }
  Result result;
  result.document = DocumentOf(*plan, entries.back());
  absl::Status status = AppendRows(*plan, entries, result.document);
  const v1::FuseResponse& answer = entries.back().measurement.first;  // the fused one's, if both ran
  if (status.ok()) status = WriteOutput(answer, 0, "output", absl::GetFlag(FLAGS_output), result.document);
  if (status.ok()) status = WriteOutput(answer, 1, "sum_output", absl::GetFlag(FLAGS_sum_output), result.document);
  if (!status.ok()) return status;
  return result;
}

}  // namespace ridgeline::cli
