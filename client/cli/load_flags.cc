#include "client/cli/load_flags.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cli/arguments.h"
#include "client/cli/attention_flags.h"
#include "client/cli/geometry_flags.h"
#include "client/cli/units.h"

ABSL_FLAG(
    std::optional<int>, clients, std::nullopt,
    "Closed loop: callers, each of which sends its next request when the last is answered. Empty: 1. At most 1024, each a "
    "thread, but for --paged; many threads on few cores take time from each other, and from a daemon beside them.");
ABSL_FLAG(std::optional<double>, rate, std::nullopt,
          "Open loop instead: requests a second (with --paged: sessions), at the times of a Poisson process, however slow the "
          "server is. Latency counts from the intended time.");
ABSL_FLAG(std::optional<int>, max_in_flight, std::nullopt,
          "Open loop: requests or sessions under way at once. Empty: 128. Where all are busy, the next begins late.");
ABSL_FLAG(
    std::optional<absl::Duration>, drain, std::nullopt,
    "Open loop: how long after the end to send what was intended before it, and to complete sessions. Empty: 5s. The rest "
    "is never sent, and counted.");
ABSL_FLAG(int, channels, 0, "Connections that the callers share. 0: one for every 8 of them, at most 16.");
ABSL_FLAG(absl::Duration, warm_up, absl::Seconds(1), "Load before measuring begins.");
ABSL_FLAG(absl::Duration, duration, absl::Seconds(10), "How long to measure.");
ABSL_FLAG(
    std::string, shapes, "1,512,8,64",
    "What a request attends: shapes as those of attend's --random (B,S,H,D or B,Sq,Sk,Hq,Hkv,D), separated by slashes, "
    "each with an optional weight: 3:1,512,8,64/1:1,2048,8,64. With --paged one shape of batch 1: its query tokens are the "
    "longest chunk of a prompt, its key tokens the context.");
ABSL_FLAG(std::optional<double>, decode_share, std::nullopt,
          "Share of decode steps: one query token of the drawn shape over a context. Empty: 0. With --paged the share of the "
          "clients that decode, while the others prefill over and over. Empty: 1.");
ABSL_FLAG(
    std::string, context, "",
    "Context lengths of decode steps, or of sessions when they begin: fixed:N, uniform:SHORTEST,LONGEST, "
    "lognormal:MEDIAN,SIGMA (of the logarithm) or trace:FILE (one a line, in order, over and over). Empty: the shape's key "
    "tokens.");
ABSL_FLAG(bool, inline_output, false, "Answers bring their output; otherwise it is computed and dropped.");
ABSL_FLAG(bool, allow_refused, false, "Refusals for want of room (RESOURCE_EXHAUSTED) leave the exit status 0.");

ABSL_FLAG(bool, paged, false,
          "Sessions over KV caches instead, each with a sequence of its own: in a closed loop its context is filled before the "
          "load begins, in an open one prefilled in chunks; then it decodes, a token a step, on one stream a client.");
ABSL_FLAG(std::optional<std::string>, decode_tokens, std::nullopt,
          "--paged: tokens that a session decodes before it ends: a distribution as for --context. Empty: fixed:256.");
ABSL_FLAG(
    std::optional<std::string>, session_end, std::nullopt,
    "--paged, closed loop: what follows. truncate: the sequence is cut back to its context and decodes again; recreate: it "
    "is deleted, and another of a newly drawn context filled. Empty: truncate.");
ABSL_FLAG(std::optional<std::string>, trace, std::nullopt,
          "--paged: an open loop of the sessions of a file, a line each: seconds from the load's start, prefill tokens, decode "
          "tokens.");
ABSL_FLAG(std::optional<int>, caches, std::nullopt,
          "--paged: caches that the clients share, in turn. As many as clients: each has its own. Empty: 1.");
ABSL_FLAG(std::optional<double>, cancel_share, std::nullopt,
          "--paged: share of decode steps that are cancelled while under way; the session ends with them. Empty: 0.");

namespace ridgeline::cli {
namespace {

constexpr int kMaxWorkers = 1024;
constexpr int kMaxChannels = 64;
constexpr double kMaxRate = 1e6;
constexpr int kMaxLayers = 4096;
constexpr std::int64_t kMaxPageTokens = 256;
constexpr std::int64_t kMaxPages = std::int64_t{1} << 31;

absl::Status CheckRange(absl::string_view flag, std::int64_t number, std::int64_t minimum, std::int64_t maximum) {
  if (number >= minimum && number <= maximum) return absl::OkStatus();
  return UsageError(absl::StrCat("--", flag, " is ", number, "; ", minimum, " to ", maximum, " is allowed"));
}

absl::Status CheckShare(absl::string_view flag, double share) {
  if (share >= 0 && share <= 1) return absl::OkStatus();
  return UsageError(absl::StrCat("--", flag, " is ", share, "; 0 to 1 is allowed"));
}

absl::Status CheckDuration(absl::string_view flag, absl::Duration duration, bool may_be_zero) {
  const bool long_enough = may_be_zero ? duration >= absl::ZeroDuration() : duration > absl::ZeroDuration();
  if (long_enough && duration <= absl::Hours(24)) return absl::OkStatus();
  return UsageError(absl::StrCat("--", flag, " is ", absl::FormatDuration(duration), "; ", may_be_zero ? "0" : "more than 0",
                                 " to 24h is allowed"));
}

// A flag that the chosen loop would ignore.
absl::Status CheckLoop(bool has_rate, bool has_trace) {
  if (has_rate && has_trace) return UsageError("--rate and --trace are both given; a trace has its own arrivals");
  const absl::string_view open_flag = has_trace ? "--trace" : "--rate";
  const bool open_loop = has_rate || has_trace;
  if (open_loop && absl::GetFlag(FLAGS_clients).has_value()) {
    return UsageError(absl::StrCat("--clients and ", open_flag,
                                   " are both given; the first is for a closed loop, the second for an open one"));
  }
  const bool has_open_flag = absl::GetFlag(FLAGS_max_in_flight).has_value() || absl::GetFlag(FLAGS_drain).has_value();
  if (!open_loop && has_open_flag) return UsageError("--max_in_flight and --drain are for the open loop; --rate is missing");
  if (open_loop && absl::GetFlag(FLAGS_session_end).has_value()) {
    return UsageError(absl::StrCat("--session_end and ", open_flag, " are both given; sessions of an open loop are deleted"));
  }
  return absl::OkStatus();
}

absl::Status ReadLoop(Load& load) {
  const std::optional<double> rate = absl::GetFlag(FLAGS_rate);
  if (rate.has_value() && !(*rate > 0 && *rate <= kMaxRate)) {
    return UsageError(absl::StrCat("--rate is ", *rate, "; more than 0 to ", FormatCount(static_cast<std::int64_t>(kMaxRate)),
                                   " requests a second are allowed"));
  }
  load.timing.rate_per_second = rate;
  const bool has_trace = absl::GetFlag(FLAGS_trace).has_value();
  const bool open_loop = rate.has_value() || has_trace;
  load.num_workers = open_loop ? absl::GetFlag(FLAGS_max_in_flight).value_or(128) : absl::GetFlag(FLAGS_clients).value_or(1);
  absl::Status status = CheckLoop(rate.has_value(), has_trace);
  status.Update(CheckRange(open_loop ? "max_in_flight" : "clients", load.num_workers, 1, kMaxWorkers));
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
  mix.decode_share = absl::GetFlag(FLAGS_decode_share).value_or(0);
  absl::Status status = CheckShare("decode_share", mix.decode_share);
  if (const std::string context = absl::GetFlag(FLAGS_context); !context.empty()) {
    const absl::StatusOr<LengthDistribution> lengths = LengthDistribution::Parse("context", context);
    status.Update(lengths.status());
    if (lengths.ok()) mix.context = *lengths;
  }
  return status;
}

absl::Status CheckDense(const WorkMix& mix) {
  if (mix.context.has_value() && mix.decode_share == 0) {
    return UsageError("--context is for decode steps; --decode_share above 0 is missing");
  }
  const std::pair<const char*, bool> paged_flags[] = {{"decode_tokens", absl::GetFlag(FLAGS_decode_tokens).has_value()},
                                                      {"session_end", absl::GetFlag(FLAGS_session_end).has_value()},
                                                      {"trace", absl::GetFlag(FLAGS_trace).has_value()},
                                                      {"layers", absl::GetFlag(FLAGS_layers) != 1},
                                                      {"page_tokens", absl::GetFlag(FLAGS_page_tokens) != 16},
                                                      {"caches", absl::GetFlag(FLAGS_caches).has_value()},
                                                      {"capacity_pages", absl::GetFlag(FLAGS_capacity_pages) != 0},
                                                      {"cancel_share", absl::GetFlag(FLAGS_cancel_share).has_value()}};
  for (const auto& [flag, given] : paged_flags) {
    if (given) return UsageError(absl::StrCat("--", flag, " is for sessions over KV caches; --paged is missing"));
  }
  return absl::OkStatus();
}

absl::Status ReadSessionMix(const Load& load, SessionMix& mix) {
  if (load.mix.context.has_value()) {
    mix.context = *load.mix.context;
  } else {
    mix.context = LengthDistribution::Fixed(load.mix.shapes[0].shape.key_tokens);
  }
  const absl::StatusOr<LengthDistribution> decode_tokens = LengthDistribution::Parse("decode_tokens", load.flags.decode_tokens);
  if (!decode_tokens.ok()) return decode_tokens.status();
  mix.decode_tokens = *decode_tokens;
  const bool open_loop = load.timing.rate_per_second.has_value() || !load.flags.trace.empty();
  const std::optional<double> decode_share = absl::GetFlag(FLAGS_decode_share);
  if (open_loop && decode_share.has_value()) {
    return UsageError("--decode_share is for a closed loop; every session of an open one prefills, then decodes");
  }
  mix.decode_share = decode_share.value_or(1);
  if (load.flags.trace.empty()) return absl::OkStatus();
  absl::StatusOr<std::vector<TracedSession>> sessions = ReadSessionTrace(load.flags.trace);
  if (!sessions.ok()) return sessions.status();
  mix.trace = *std::move(sessions);
  return absl::OkStatus();
}

absl::Status ReadGeometry(const Load& load, SessionGeometry& geometry) {
  if (load.mix.shapes.size() != 1 || load.mix.shapes[0].shape.batch != 1) {
    return UsageError(absl::StrCat("--shapes is '", load.flags.shapes, "'; with --paged one shape of batch 1 is allowed"));
  }
  geometry.shape = load.mix.shapes[0].shape;
  geometry.layers = absl::GetFlag(FLAGS_layers);
  geometry.page_tokens = absl::GetFlag(FLAGS_page_tokens);
  geometry.type = load.type;
  geometry.options = OptionsFromFlags();
  geometry.options.set_algorithm(load.algorithm);
  geometry.inline_output = load.inline_output;
  geometry.seed = absl::GetFlag(FLAGS_seed);
  absl::Status status = CheckRange("layers", geometry.layers, 1, kMaxLayers);
  status.Update(CheckRange("page_tokens", geometry.page_tokens, 1, kMaxPageTokens));
  return status;
}

absl::StatusOr<PagedLoad> ReadPaged(const Load& load) {
  PagedLoad paged;
  absl::Status status = ReadGeometry(load, paged.geometry);
  status.Update(ReadSessionMix(load, paged.mix));
  const std::string session_end = absl::GetFlag(FLAGS_session_end).value_or("truncate");
  if (session_end != "truncate" && session_end != "recreate") {
    status.Update(UsageError(absl::StrCat("--session_end is '", session_end, "'; truncate and recreate are allowed")));
  }
  paged.recreate = session_end == "recreate";
  paged.cancel_share = absl::GetFlag(FLAGS_cancel_share).value_or(0);
  status.Update(CheckShare("cancel_share", paged.cancel_share));
  paged.num_caches = absl::GetFlag(FLAGS_caches).value_or(1);
  status.Update(CheckRange("caches", paged.num_caches, 1, load.num_workers));
  paged.capacity_pages = absl::GetFlag(FLAGS_capacity_pages);
  status.Update(CheckRange("capacity_pages", paged.capacity_pages, 0, kMaxPages));
  if (!status.ok()) return status;
  return paged;
}

}  // namespace

absl::StatusOr<Load> LoadFromFlags() {
  const absl::StatusOr<v1::DataType> type = DataTypeFromFlags();
  if (!type.ok()) return type.status();
  const absl::StatusOr<v1::Algorithm> algorithm = AlgorithmFromFlags();
  if (!algorithm.ok()) return algorithm.status();
  Load load;
  load.flags = {absl::GetFlag(FLAGS_shapes), absl::GetFlag(FLAGS_context),
                absl::GetFlag(FLAGS_decode_tokens).value_or("fixed:256"), absl::GetFlag(FLAGS_trace).value_or("")};
  if (*type != v1::DATA_TYPE_UNSPECIFIED) load.type = *type;
  load.algorithm = *algorithm;
  load.inline_output = absl::GetFlag(FLAGS_inline_output);
  load.allow_refused = absl::GetFlag(FLAGS_allow_refused);
  absl::Status status = ReadLoop(load);
  status.Update(ReadTiming(load.timing));
  status.Update(ReadMix(load.mix));
  if (!status.ok()) return status;
  if (!absl::GetFlag(FLAGS_paged)) {
    status = CheckDense(load.mix);
    if (!status.ok()) return status;
    return load;
  }
  absl::StatusOr<PagedLoad> paged = ReadPaged(load);
  if (!paged.ok()) return paged.status();
  load.paged = *std::move(paged);
  return load;
}

}  // namespace ridgeline::cli
