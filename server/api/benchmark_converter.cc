#include "server/api/benchmark_converter.h"

#include <string>
#include <variant>

#include "server/api/data_type.h"
#include "server/api/gpu_status_converter.h"
#include "server/api/report_converter.h"
#include "server/api/tensor_converter.h"

namespace ridgeline::api {
namespace {

namespace benchmark = engine::benchmark;
using google::protobuf::Map;

void Convert(const benchmark::AxisValues& values, Map<std::string, std::string>& message) {
  for (const auto& [name, value] : values.all()) message[name] = value;
}

void Convert(const engine::measure::Statistics& statistics, v1::Statistics& message) {
  message.set_samples(statistics.samples);
  message.set_median(statistics.median);
  message.set_mean(statistics.mean);
  message.set_standard_deviation(statistics.standard_deviation);
  message.set_p5(statistics.p5);
  message.set_p95(statistics.p95);
  message.set_minimum(statistics.minimum);
  message.set_relative_noise(statistics.relative_noise);
}

v1::StopReason ToMessage(engine::measure::StopReason reason) {
  return reason == engine::measure::StopReason::kQuiet ? v1::STOP_REASON_QUIET : v1::STOP_REASON_TIME_LIMIT;
}

v1::Verdict ToMessage(benchmark::Verdict verdict) {
  switch (verdict) {
    case benchmark::Verdict::kBorneOut:
      return v1::VERDICT_BORNE_OUT;
    case benchmark::Verdict::kNotBorneOut:
      return v1::VERDICT_NOT_BORNE_OUT;
    case benchmark::Verdict::kInconclusive:
      break;
  }
  return v1::VERDICT_UNSPECIFIED;
}

void Convert(const benchmark::Progress& progress, v1::BenchmarkResponse& message) {
  v1::Progress& to = *message.mutable_progress();
  to.set_points_done(progress.points_done);
  to.set_points_total(progress.points_total);
  Convert(progress.current, *to.mutable_axis_values());
  to.set_waiting(progress.is_waiting);
}

void Convert(const benchmark::Point& point, v1::BenchmarkResponse& message) {
  v1::BenchmarkPoint& to = *message.mutable_point();
  Convert(point.values, *to.mutable_axis_values());
  to.set_skipped_reason(point.skipped_reason);
  Convert(point.statistics, *to.mutable_statistics());
  if (!point.skipped_reason.empty()) return;
  *to.mutable_report() = api::ToMessage(point.report);
  to.set_throttled(point.throttled);
  to.set_noisy(point.noisy);
  to.set_stop_reason(ToMessage(point.stop_reason));
  to.set_discarded_samples(point.discarded_samples);
  to.set_repetitions(point.repetitions);
  for (const auto& [name, value] : point.figures) (*to.mutable_figures())[name] = value;
  to.set_data_type(api::ToMessage(point.data_type));
  if (point.before.has_value()) api::Convert(*point.before, *to.mutable_gpu_before());
  if (point.after.has_value()) api::Convert(*point.after, *to.mutable_gpu_after());
}

void Convert(const benchmark::Summary& summary, v1::BenchmarkResponse& message) {
  v1::BenchmarkSummary& to = *message.mutable_summary();
  to.set_points(summary.points);
  to.set_skipped_points(summary.skipped_points);
  to.set_throttled_points(summary.throttled_points);
  to.set_noisy_points(summary.noisy_points);
  *to.mutable_elapsed() = api::ToMessage(summary.elapsed);
  *to.mutable_wait_time() = api::ToMessage(summary.wait_time);
  v1::Measurement& measurement = *to.mutable_measurement();
  *measurement.mutable_min_time() = api::ToMessage(summary.limits.min_time);
  *measurement.mutable_max_time() = api::ToMessage(summary.limits.max_time);
  measurement.set_max_relative_noise(summary.limits.max_relative_noise);
  measurement.set_cold_cache(summary.cold_cache);
  *measurement.mutable_warm_up() = api::ToMessage(summary.limits.warm_up);
  to.set_seed(summary.seed);
  to.set_input_distribution(summary.input_distribution);
  to.set_serving_policy(summary.serving_policy);
  to.set_verdict(ToMessage(summary.judgement.verdict));
  to.set_explanation(summary.judgement.explanation);
  for (const benchmark::Finding& finding : summary.judgement.findings) {
    v1::Finding& added = *to.add_findings();
    added.set_name(finding.name);
    added.set_value(finding.value);
    added.set_description(finding.meaning);
  }
}

}  // namespace

benchmark::Request FromMessage(const v1::BenchmarkRequest& message) {
  benchmark::Request request;
  request.name = message.name();
  for (const auto& [name, values] : message.axes()) {
    request.axes[name].assign(values.values().begin(), values.values().end());
  }
  const v1::Measurement& measurement = message.measurement();
  benchmark::MeasurementOptions& options = request.measurement;
  if (measurement.has_min_time()) options.min_time = FromMessage(measurement.min_time());
  if (measurement.has_max_time()) options.max_time = FromMessage(measurement.max_time());
  if (measurement.has_warm_up()) options.warm_up = FromMessage(measurement.warm_up());
  if (measurement.has_max_relative_noise()) options.max_relative_noise = measurement.max_relative_noise();
  options.cold_cache = measurement.cold_cache();
  if (message.seed() != 0) request.seed = message.seed();
  return request;
}

v1::BenchmarkDescription ToMessage(const benchmark::Description& description) {
  v1::BenchmarkDescription message;
  message.set_name(description.name);
  message.set_description(description.claim);
  message.set_unsupported_reason(description.unsupported_reason);
  message.mutable_plot()->set_x_axis(description.plot.x_axis);
  message.mutable_plot()->set_y(description.plot.y);
  for (const benchmark::Axis& axis : description.axes) {
    v1::BenchmarkAxis& added = *message.add_axes();
    added.set_name(axis.name);
    added.set_description(axis.description);
    for (const std::string& value : axis.default_values) added.add_default_values(value);
    for (const std::string& choice : axis.choices) added.add_choices(choice);
    added.set_minimum(axis.minimum);
    added.set_maximum(axis.maximum);
    added.set_multiple_of(axis.multiple_of);
  }
  return message;
}

v1::BenchmarkResponse ToMessage(const benchmark::Event& event) {
  v1::BenchmarkResponse message;
  std::visit([&](const auto& alternative) { Convert(alternative, message); }, event);
  return message;
}

}  // namespace ridgeline::api
