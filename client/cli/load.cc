// `ridgeline load`
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cli/arguments.h"
#include "client/cli/attention_flags.h"
#include "client/cli/commands.h"
#include "client/cli/common_flags.h"
#include "client/cli/load_document.h"
#include "client/cli/load_run.h"
#include "client/cli/load_schedule.h"
#include "client/cli/progress.h"
#include "client/cli/units.h"
#include "client/cli/work_mix.h"

ABSL_FLAG(
    std::optional<int>, clients, std::nullopt,
    "Closed loop: callers, each of which sends its next request when the last is answered. Empty: 1. Each is a thread, at "
    "most 1024; many on few cores take time from each other, and from a daemon beside them.");
ABSL_FLAG(std::optional<double>, rate, std::nullopt,
          "Open loop instead: requests a second, at the times of a Poisson process, however slow the server is. Latency counts "
          "from the intended time.");
ABSL_FLAG(std::optional<int>, max_in_flight, std::nullopt,
          "Open loop: requests under way at once, a thread each. Empty: 128. Where all are busy, a request leaves late.");
ABSL_FLAG(
    std::optional<absl::Duration>, drain, std::nullopt,
    "Open loop: how long after the end to send what was intended before it. Empty: 5s. The rest is never sent, and counted.");
ABSL_FLAG(int, channels, 0, "Connections that the callers share. 0: one for every 8 of them, at most 16.");
ABSL_FLAG(absl::Duration, warm_up, absl::Seconds(1), "Load before measuring begins.");
ABSL_FLAG(absl::Duration, duration, absl::Seconds(10), "How long to measure.");
ABSL_FLAG(std::string, shapes, "1,512,8,64",
          "What a request attends: shapes as those of attend's --random (B,S,H,D or B,Sq,Sk,Hq,Hkv,D), separated by slashes, "
          "each with an optional weight: 3:1,512,8,64/1:1,2048,8,64.");
ABSL_FLAG(double, decode_share, 0, "Share of decode steps: one query token of the drawn shape over a context.");
ABSL_FLAG(std::string, context, "",
          "Context lengths of decode steps: fixed:N, uniform:SHORTEST,LONGEST, lognormal:MEDIAN,SIGMA (of the logarithm) or "
          "trace:FILE (one a line, in order, over and over). Empty: the shape's key tokens.");
ABSL_FLAG(bool, inline_output, false, "Answers bring their output; otherwise it is computed and dropped.");
ABSL_FLAG(bool, allow_refused, false, "Refusals for want of room (RESOURCE_EXHAUSTED) leave the exit status 0.");

namespace ridgeline::cli {
namespace {

constexpr int kMaxWorkers = 1024;
constexpr int kMaxChannels = 64;
constexpr double kMaxRate = 1e6;

struct Load {
  LoadTiming timing;
  WorkMix mix;
  int num_workers = 1;  // clients, or the most requests in flight
  int num_channels = 1;
  v1::DataType type = v1::DATA_TYPE_FLOAT32;
  v1::Algorithm algorithm = v1::ALGORITHM_UNSPECIFIED;

  bool open_loop() const { return timing.rate_per_second.has_value(); }
};

absl::Status CheckRange(absl::string_view flag, std::int64_t number, std::int64_t minimum, std::int64_t maximum) {
  if (number >= minimum && number <= maximum) return absl::OkStatus();
  return UsageError(absl::StrCat("--", flag, " is ", number, "; ", minimum, " to ", maximum, " is allowed"));
}

absl::Status CheckDuration(absl::string_view flag, absl::Duration duration, bool may_be_zero) {
  const bool long_enough = may_be_zero ? duration >= absl::ZeroDuration() : duration > absl::ZeroDuration();
  if (long_enough && duration <= absl::Hours(24)) return absl::OkStatus();
  return UsageError(absl::StrCat("--", flag, " is ", absl::FormatDuration(duration), "; ", may_be_zero ? "0" : "more than 0",
                                 " to 24h is allowed"));
}

// A flag that the chosen loop would ignore.
absl::Status CheckLoop(bool open_loop) {
  if (open_loop && absl::GetFlag(FLAGS_clients).has_value()) {
    return UsageError("--clients and --rate are both given; the first is for a closed loop, the second for an open one");
  }
  const bool has_open_flag = absl::GetFlag(FLAGS_max_in_flight).has_value() || absl::GetFlag(FLAGS_drain).has_value();
  if (!open_loop && has_open_flag) return UsageError("--max_in_flight and --drain are for the open loop; --rate is missing");
  return absl::OkStatus();
}

absl::Status ReadLoop(Load& load) {
  const std::optional<double> rate = absl::GetFlag(FLAGS_rate);
  if (rate.has_value() && !(*rate > 0 && *rate <= kMaxRate)) {
    return UsageError(absl::StrCat("--rate is ", *rate, "; more than 0 to ", FormatCount(static_cast<std::int64_t>(kMaxRate)),
                                   " requests a second are allowed"));
  }
  load.timing.rate_per_second = rate;
  load.num_workers =
      rate.has_value() ? absl::GetFlag(FLAGS_max_in_flight).value_or(128) : absl::GetFlag(FLAGS_clients).value_or(1);
  absl::Status status = CheckLoop(rate.has_value());
  status.Update(CheckRange(rate.has_value() ? "max_in_flight" : "clients", load.num_workers, 1, kMaxWorkers));
  load.num_channels = absl::GetFlag(FLAGS_channels);
  status.Update(CheckRange("channels", load.num_channels, 0, kMaxChannels));
  if (load.num_channels == 0) load.num_channels = std::min((load.num_workers + 7) / 8, 16);
  return status;
}

absl::Status ReadTiming(LoadTiming& timing) {
  const absl::Duration warm_up = absl::GetFlag(FLAGS_warm_up);
  const absl::Duration duration = absl::GetFlag(FLAGS_duration);
  const absl::Duration drain = absl::GetFlag(FLAGS_drain).value_or(absl::Seconds(5));
  absl::Status status = CheckDuration("warm_up", warm_up, /*may_be_zero=*/true);
  status.Update(CheckDuration("duration", duration, /*may_be_zero=*/false));
  status.Update(CheckDuration("drain", drain, /*may_be_zero=*/true));
  timing.warm_up_seconds = absl::ToDoubleSeconds(warm_up);
  timing.duration_seconds = absl::ToDoubleSeconds(duration);
  timing.drain_seconds = absl::ToDoubleSeconds(drain);
  return status;
}

absl::Status ReadMix(WorkMix& mix) {
  absl::StatusOr<std::vector<WeightedShape>> shapes = ParseWeightedShapes(absl::GetFlag(FLAGS_shapes));
  if (!shapes.ok()) return shapes.status();
  mix.shapes = *std::move(shapes);
  for (WeightedShape& weighted : mix.shapes) OverrideFromFlags(weighted.shape);
  mix.decode_share = absl::GetFlag(FLAGS_decode_share);
  if (!(mix.decode_share >= 0 && mix.decode_share <= 1)) {
    return UsageError(absl::StrCat("--decode_share is ", mix.decode_share, "; 0 to 1 is allowed"));
  }
  const std::string context = absl::GetFlag(FLAGS_context);
  if (context.empty()) return absl::OkStatus();
  if (mix.decode_share == 0) return UsageError("--context is for decode steps; --decode_share above 0 is missing");
  const absl::StatusOr<LengthDistribution> lengths = LengthDistribution::Parse(context);
  if (!lengths.ok()) return lengths.status();
  mix.context = *lengths;
  return absl::OkStatus();
}

absl::StatusOr<Load> LoadFromFlags() {
  const absl::StatusOr<v1::DataType> type = DataTypeFromFlags();
  if (!type.ok()) return type.status();
  const absl::StatusOr<v1::Algorithm> algorithm = AlgorithmFromFlags();
  if (!algorithm.ok()) return algorithm.status();
  Load load;
  if (*type != v1::DATA_TYPE_UNSPECIFIED) load.type = *type;
  load.algorithm = *algorithm;
  absl::Status status = ReadLoop(load);
  status.Update(ReadTiming(load.timing));
  status.Update(ReadMix(load.mix));
  if (!status.ok()) return status;
  return load;
}

// Connections of their own that never retry: each refusal is to be seen.
absl::StatusOr<std::vector<client::Client>> OpenChannels(int num_channels) {
  client::ClientOptions options;
  options.timeout = absl::GetFlag(FLAGS_timeout);
  options.name = absl::GetFlag(FLAGS_client_name);
  options.retry.max_attempts = 1;
  options.own_connection = true;
  std::vector<client::Client> channels;
  for (int i = 0; i < num_channels; ++i) {
    absl::StatusOr<client::Client> channel = client::Client::Create(absl::GetFlag(FLAGS_address), options);
    if (!channel.ok()) return channel.status();
    channels.push_back(*std::move(channel));
  }
  return channels;
}

// What was asked for, in three lines.
std::string HeadingOf(const Load& load, const std::string& device) {
  const LoadTiming& timing = load.timing;
  const std::string loop =
      load.open_loop()
          ? absl::StrCat("Open loop: ", FormatPerSecond(*timing.rate_per_second), ", at most ", load.num_workers, " in flight")
          : absl::StrCat("Closed loop: ", load.num_workers, load.num_workers == 1 ? " client" : " clients");
  const std::string context = absl::GetFlag(FLAGS_context);
  const std::string decode = load.mix.decode_share == 0
                                 ? ""
                                 : absl::StrCat("; ", FormatFraction(load.mix.decode_share), " decode steps",
                                                context.empty() ? "" : " over ", context);
  return absl::StrCat(device, "\n", loop, " on ", load.num_channels, load.num_channels == 1 ? " connection" : " connections",
                      ", ", FormatSeconds(timing.duration_seconds), " after ", FormatSeconds(timing.warm_up_seconds),
                      " of warm-up\nShapes ", absl::GetFlag(FLAGS_shapes), decode, "; ", DataTypeName(load.type),
                      ", mask: ", MaskText(OptionsFromFlags()), ", algorithm: ", AlgorithmName(load.algorithm));
}

// The same, for programs.
Section LoadSection(const Load& load, const std::string& device) {
  const std::string context = absl::GetFlag(FLAGS_context);
  return {"",
          {{"device", "", device},
           {"loop", "", load.open_loop() ? "open" : "closed"},
           {"clients", "", load.open_loop() ? Value() : Value(std::int64_t{load.num_workers})},
           {"target_requests_per_second", "", load.open_loop() ? Value(*load.timing.rate_per_second) : Value()},
           {"max_in_flight", "", load.open_loop() ? Value(std::int64_t{load.num_workers}) : Value()},
           {"channels", "", std::int64_t{load.num_channels}},
           {"shapes", "", absl::GetFlag(FLAGS_shapes)},
           {"decode_share", "", load.mix.decode_share},
           {"context", "", context.empty() ? Value() : Value(context)},
           {"data_type", "", DataTypeName(load.type)},
           {"mask", "", MaskText(OptionsFromFlags())},
           {"algorithm", "", AlgorithmName(load.algorithm)},
           {"timeout_seconds", "", absl::ToDoubleSeconds(absl::GetFlag(FLAGS_timeout))},
           {"seed", "", static_cast<std::int64_t>(absl::GetFlag(FLAGS_seed))},
           {"warm_up_seconds", "", load.timing.warm_up_seconds},
           {"duration_seconds", "", load.timing.duration_seconds}}};
}

std::string ProgressText(const Load& load, const LoadState& state) {
  const std::string counts =
      absl::StrCat(FormatCount(state.num_answered), " answered, ", FormatCount(state.num_failed), " failed");
  if (state.now_seconds < 0) return "warming up …";
  if (state.now_seconds > load.timing.duration_seconds) return absl::StrCat("waiting for the last answers, ", counts, " …");
  return absl::StrCat(static_cast<int>(state.now_seconds), " of ", FormatSeconds(load.timing.duration_seconds), ", ", counts,
                      " …");
}

}  // namespace

absl::StatusOr<Result> RunLoad(const client::Client& client) {
  const absl::StatusOr<Load> load = LoadFromFlags();
  if (!load.ok()) return load.status();
  const absl::StatusOr<v1::Device> device = client.GetDevice();
  if (!device.ok()) return device.status();
  const absl::StatusOr<std::vector<client::Client>> channels = OpenChannels(load->num_channels);
  if (!channels.ok()) return channels.status();

  LoadSchedule schedule(load->timing, load->mix, absl::GetFlag(FLAGS_seed));
  const auto make_request = [&load](const ProblemShape& shape) {
    v1::AttendRequest request = RandomRequest(shape, load->type);
    request.mutable_options()->set_algorithm(load->algorithm);
    request.mutable_output()->set_discard(!absl::GetFlag(FLAGS_inline_output));
    return request;
  };
  LoadOutcome outcome;
  {
    Progress progress;
    outcome = RunLoadThreads(*channels, load->num_workers, load->timing, schedule, make_request,
                             [&](const LoadState& state) { progress.Show(ProgressText(*load, state)); });
  }
  Result result;
  result.interruption = outcome.ended_by;
  result.complaint = ComplaintAbout(outcome, absl::GetFlag(FLAGS_allow_refused));
  if (!outcome.ended_by.ok() && outcome.prefill.num_answered + outcome.decode.num_answered == 0) return outcome.ended_by;
  result.document.heading = HeadingOf(*load, device->name());
  result.document.sections.push_back(LoadSection(*load, device->name()));
  AppendOutcome(result.document, std::move(outcome), load->open_loop());
  return result;
}

}  // namespace ridgeline::cli
