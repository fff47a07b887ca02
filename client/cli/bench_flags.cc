#include "client/cli/bench_flags.h"

#include <algorithm>
#include <optional>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "client/cli/arguments.h"

ABSL_FLAG(std::vector<std::string>, benchmarks, {},
          "Names of benchmarks, separated by commas. Empty: all that the device has.");
ABSL_FLAG(std::string, axis, "",
          "Values instead of the defaults: tokens=1024,2048,phase=decode. An axis goes to the benchmarks that have it.");
ABSL_FLAG(std::optional<absl::Duration>, min_time, std::nullopt,
          "Measure each point at least so long. Empty: the daemon's default.");
ABSL_FLAG(std::optional<absl::Duration>, max_time, std::nullopt,
          "Measure each point at most so long. Empty: such that a benchmark takes about ten seconds.");
ABSL_FLAG(std::optional<double>, noise, std::nullopt,
          "Stop at a point when its median is known to this share of it, with 95 %. Empty: 0.005.");
ABSL_FLAG(bool, cold_cache, false, "Fill the caches with other data before each sample.");

namespace ridgeline::cli {
namespace {

using Axes = std::map<std::string, std::vector<std::string>>;

google::protobuf::Duration ToMessage(absl::Duration duration) {
  google::protobuf::Duration message;
  message.set_seconds(absl::ToInt64Seconds(duration));
  message.set_nanos(static_cast<std::int32_t>(absl::ToInt64Nanoseconds(duration - absl::Seconds(message.seconds()))));
  return message;
}

v1::Measurement MeasurementFromFlags() {
  v1::Measurement measurement;
  if (const auto time = absl::GetFlag(FLAGS_min_time); time.has_value()) *measurement.mutable_min_time() = ToMessage(*time);
  if (const auto time = absl::GetFlag(FLAGS_max_time); time.has_value()) *measurement.mutable_max_time() = ToMessage(*time);
  if (const auto noise = absl::GetFlag(FLAGS_noise); noise.has_value()) measurement.set_max_relative_noise(*noise);
  measurement.set_cold_cache(absl::GetFlag(FLAGS_cold_cache));
  return measurement;
}

bool HasAxis(const v1::BenchmarkDescription& description, const std::string& name) {
  return std::any_of(description.axes().begin(), description.axes().end(),
                     [&](const v1::BenchmarkAxis& axis) { return axis.name() == name; });
}

absl::StatusOr<v1::BenchmarkDescription> FindDescription(const v1::ListBenchmarksResponse& list, const std::string& name) {
  std::vector<std::string> names;
  for (const v1::BenchmarkDescription& description : list.benchmarks()) {
    if (description.name() == name) return description;
    names.push_back(description.name());
  }
  const std::optional<std::string> meant = ClosestMatch(name, names);
  return UsageError(absl::StrCat("there is no benchmark ", name,
                                 meant.has_value() ? absl::StrCat(" (did you mean ", *meant, "?)") : "",
                                 "; `ridgeline bench --list` lists them"));
}

absl::StatusOr<std::vector<v1::BenchmarkDescription>> ChooseDescriptions(const v1::ListBenchmarksResponse& list) {
  std::vector<v1::BenchmarkDescription> chosen;
  for (const std::string& name : absl::GetFlag(FLAGS_benchmarks)) {
    absl::StatusOr<v1::BenchmarkDescription> description = FindDescription(list, name);
    if (!description.ok()) return description.status();
    chosen.push_back(*std::move(description));
  }
  if (!chosen.empty()) return chosen;
  for (const v1::BenchmarkDescription& description : list.benchmarks()) {
    if (description.unsupported_reason().empty()) chosen.push_back(description);
  }
  return chosen;
}

absl::Status CheckAxes(const std::vector<v1::BenchmarkDescription>& chosen, const Axes& axes) {
  for (const auto& [name, values] : axes) {
    const auto has_it = [&axis = name](const v1::BenchmarkDescription& description) { return HasAxis(description, axis); };
    if (std::any_of(chosen.begin(), chosen.end(), has_it)) continue;
    std::vector<std::string> names;
    for (const v1::BenchmarkDescription& description : chosen) {
      for (const v1::BenchmarkAxis& axis : description.axes()) names.push_back(axis.name());
    }
    const std::optional<std::string> meant = ClosestMatch(name, names);
    return UsageError(absl::StrCat("--axis: none of the benchmarks has an axis ", name,
                                   meant.has_value() ? absl::StrCat("; did you mean ", *meant, "?") : ""));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Axes> ParseAxes(absl::string_view text) {
  Axes axes;
  std::vector<std::string>* values = nullptr;
  for (const absl::string_view word : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::size_t equals = word.find('=');
    if (equals == 0 || (equals == absl::string_view::npos && values == nullptr)) {
      return UsageError(absl::StrCat("--axis is '", text, "'; NAME=VALUE,VALUE,NAME=VALUE is needed"));
    }
    if (equals == absl::string_view::npos) {
      values->emplace_back(word);
      continue;
    }
    const auto [at, is_new] = axes.try_emplace(std::string(word.substr(0, equals)));
    if (!is_new) return UsageError(absl::StrCat("--axis names ", at->first, " twice"));
    values = &at->second;
    if (equals + 1 < word.size()) values->emplace_back(word.substr(equals + 1));
  }
  return axes;
}

absl::StatusOr<std::vector<SelectedBenchmark>> SelectFromFlags(const v1::ListBenchmarksResponse& list) {
  const absl::StatusOr<Axes> axes = ParseAxes(absl::GetFlag(FLAGS_axis));
  if (!axes.ok()) return axes.status();
  const absl::StatusOr<std::vector<v1::BenchmarkDescription>> chosen = ChooseDescriptions(list);
  if (!chosen.ok()) return chosen.status();
  if (absl::Status status = CheckAxes(*chosen, *axes); !status.ok()) return status;
  std::vector<SelectedBenchmark> selected;
  for (const v1::BenchmarkDescription& description : *chosen) {
    SelectedBenchmark benchmark{.description = description, .request = {}};
    benchmark.request.set_name(description.name());
    *benchmark.request.mutable_measurement() = MeasurementFromFlags();
    for (const auto& [name, values] : *axes) {
      if (!HasAxis(description, name)) continue;
      v1::AxisValues& wanted = (*benchmark.request.mutable_axes())[name];
      for (const std::string& value : values) wanted.add_values(value);
    }
    selected.push_back(std::move(benchmark));
  }
  return selected;
}

}  // namespace ridgeline::cli
