#include "server/flags.h"

#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/base/status_macros.h"

ABSL_FLAG(
    std::string, device, "auto",
    "Device to drive: auto, cpu or cuda:N, N as CUDA counts GPUs. auto takes the first GPU if it can be used, else the CPU; "
    "the log says why.");
ABSL_FLAG(
    std::string, listen, "127.0.0.1:50051",
    "Addresses to serve gRPC on, separated by commas: host:port or unix:/path. Port 0 picks a free one; the log names it.");
ABSL_FLAG(std::string, metrics_listen, "127.0.0.1:9464",
          "host:port for /metrics, /healthz and /readyz; port 0 picks a free one; empty: no such port. Never TLS.");
ABSL_FLAG(
    std::string, tls_certificate, "",
    "PEM file with the certificate that --listen's addresses, unix sockets aside, show, and what leads to its authority. It "
    "and the next two are read again when they change. Empty: no TLS.");
ABSL_FLAG(std::string, tls_key, "", "PEM file with the key of --tls_certificate.");
ABSL_FLAG(std::string, tls_client_authority, "",
          "PEM file with the authorities whose certificates callers must have; the name in it is then the caller's, instead of "
          "x-ridgeline-client. Empty: anybody may call.");
ABSL_FLAG(
    bool, allow_plaintext, false,
    "Listen without TLS where other machines reach it, be it for gRPC or for metrics: on a network of the daemon's own, or "
    "behind a proxy.");
ABSL_FLAG(int, lanes, 4, "Requests that run at the same time, each on a lane of its own; 1 to 1024.");
ABSL_FLAG(int, threads, 0, "Threads that one kernel may use on the CPU device; 0: as many as there are cores.");
ABSL_FLAG(
    std::int64_t, memory_limit_bytes, 0,
    "Most that the allocator may reserve of the device's memory; 0: 80 % of the memory that the process may use, or all of "
    "a GPU's memory that is free at start but 1 GiB.");
ABSL_FLAG(
    std::int64_t, pinned_limit_bytes, 0,
    "With a GPU, most host memory that results may take until their callers have read them; 0: a quarter of the memory that "
    "the process may use.");
ABSL_FLAG(bool, memory_growing_segments, true,
          "Device memory comes in segments that grow in place, where the device has virtual memory management; false: in fixed "
          "segments, of cudaMalloc on a GPU.");
ABSL_FLAG(
    int, memory_rounding_divisions, 0,
    "Sizes of allocations are rounded up to the next of this many equal steps between powers of two, itself a power of two "
    "up to 64; 0: to the next 512 bytes.");
ABSL_FLAG(
    std::int64_t, memory_max_split_bytes, 0,
    "Blocks of fixed segments from this size on are handed out whole, to requests of this size and more; 0: all are split.");
ABSL_FLAG(std::int64_t, memory_history_events, 16384,
          "Recent events of the allocator that memory snapshots show, up to 10000000; 0: none are kept.");
ABSL_FLAG(std::int64_t, max_message_bytes, std::int64_t{1} << 30, "Largest request message, up to 2147483647.");
ABSL_FLAG(int, max_queued_requests, 1024, "Requests that may wait for a lane; one more is refused with RESOURCE_EXHAUSTED.");
ABSL_FLAG(std::int64_t, max_queued_bytes, std::int64_t{4} << 30,
          "Device memory that admitted requests, waiting and running, may need together; one more is refused.");
ABSL_FLAG(std::int64_t, max_requests_per_client, 0,
          "Requests, waiting and running, that one client may have; 0: as many as there is room for.");
ABSL_FLAG(
    std::int64_t, max_bytes_per_client, 0,
    "Device memory that one client's requests, waiting and running, may need together; 0: what --max_queued_bytes allows.");
ABSL_FLAG(std::string, serving_during_benchmarks, "wait",
          "What requests do while a benchmark has the device: wait (in the queue), or refuse (they get RESOURCE_EXHAUSTED).");
ABSL_FLAG(int, max_batch_requests, 256, "Attend calls on KV caches that may share one launch; 1: each has its own.");
ABSL_FLAG(std::int64_t, max_batch_tokens, 8192,
          "Query tokens of one launch that several requests share; a request that has more runs alone.");
ABSL_FLAG(std::int64_t, max_kv_caches, 1024, "KV caches that there may be at a time.");
ABSL_FLAG(std::int64_t, max_kv_caches_per_client, 64, "Of those, caches that one client may have.");
ABSL_FLAG(std::int64_t, max_kv_sequences, 65536, "Sequences that there may be in all KV caches.");
ABSL_FLAG(std::int64_t, max_kv_sequences_per_client, 16384, "Of those, sequences that one client may have.");
ABSL_FLAG(std::int64_t, max_kv_pages_per_client, 0,
          "Pages of KV caches that one client's sequences may take; 0: all there are.");
ABSL_FLAG(
    bool, shared_kv_caches, false,
    "Whoever calls may use every KV cache by its name. false: a client has the caches that it made, and names of its own.");
ABSL_FLAG(absl::Duration, peer_timeout, absl::Seconds(40),
          "How long a client may leave a ping unanswered, or a connection half made; then the connection is closed, its calls "
          "are cancelled, and what they hold is free again.");
ABSL_FLAG(int, max_streams_per_connection, 1024, "Calls that one connection may have open; further ones wait in the client.");
ABSL_FLAG(
    absl::Duration, max_connection_age, absl::InfiniteDuration(),
    "Connections of this age get no new calls, so that clients make new ones, with the certificates of that time; calls that "
    "are still open after as long again are cancelled.");
ABSL_FLAG(absl::Duration, drain_timeout, absl::Seconds(30),
          "After SIGTERM or SIGINT: how long admitted work may take to finish before it is cancelled.");
ABSL_FLAG(
    absl::Duration, session_drain_timeout, absl::ZeroDuration(),
    "After SIGTERM or SIGINT, before --drain_timeout: how long the KV caches that there are may still be used, until their "
    "clients delete them or their leases run out; new ones and work of none are refused. 0: they go at once.");
ABSL_FLAG(std::string, roofline_cache, "auto",
          "File that keeps the measured peaks between starts. auto: ridgeline/roofline in $XDG_CACHE_HOME or ~/.cache. Empty: "
          "measure at each start.");
ABSL_FLAG(std::string, log_level, "info", "Least level that is logged: debug (a line for each call), info, warning or error.");
ABSL_FLAG(std::string, log_format, "text", "Lines of the log: text (key=value), or json.");
ABSL_FLAG(bool, channelz, false, "Serve gRPC's channelz too.");

namespace ridgeline {
namespace {

absl::Status BadFlag(std::string_view flag, const absl::AlphaNum& value, std::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", std::string(flag), "=", value, " is not allowed: ", std::string(allowed)));
}

template <typename T>
absl::Status CheckRange(std::string_view flag, T value, T least, T most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return BadFlag(flag, value, absl::StrCat("it must be from ", least, " to ", most));
}

bool IsHostAndPort(absl::string_view address) {
  const std::size_t colon = address.rfind(':');
  int port = 0;
  return colon != absl::string_view::npos && colon > 0 && absl::SimpleAtoi(address.substr(colon + 1), &port) && port >= 0 &&
         port <= 65535;
}

absl::Status ReadDevice(const std::string& device, DaemonConfig& config) {
  config.device = device::DeviceRequest::kAuto;
  if (device == "auto") return absl::OkStatus();
  config.device = device::DeviceRequest::kCpu;
  if (device == "cpu") return absl::OkStatus();
  config.device = device::DeviceRequest::kCuda;
  absl::string_view ordinal = device;
  if (absl::ConsumePrefix(&ordinal, "cuda:") && absl::SimpleAtoi(ordinal, &config.cuda.ordinal) && config.cuda.ordinal >= 0) {
    return absl::OkStatus();
  }
  return BadFlag("device", device, "it must be auto, cpu or cuda:N with N from 0");
}

absl::StatusOr<std::vector<std::string>> ReadAddresses(const std::string& listen) {
  const std::vector<std::string> addresses = absl::StrSplit(listen, ',', absl::SkipEmpty());
  if (addresses.empty()) return BadFlag("listen", listen, "it must name at least one host:port or unix:/path");
  for (const std::string& address : addresses) {
    const bool is_unix = absl::StartsWith(address, "unix:") && address.size() > 5;
    if (!is_unix && !IsHostAndPort(address)) return BadFlag("listen", address, "each address must be host:port or unix:/path");
  }
  return addresses;
}

bool IsLocal(absl::string_view address) {
  if (absl::StartsWith(address, "unix:")) return true;
  const absl::string_view host = address.substr(0, address.rfind(':'));
  // A name may begin with 127 too, and lead anywhere.
  const bool is_number = host.find_first_not_of("0123456789.") == absl::string_view::npos;
  return (is_number && absl::StartsWith(host, "127.")) || host == "localhost" || host == "[::1]";
}

absl::Status CheckReach(std::string_view flag, const std::string& address, bool is_encrypted) {
  if (is_encrypted || IsLocal(address) || absl::GetFlag(FLAGS_allow_plaintext)) return absl::OkStatus();
  return BadFlag(flag, address,
                 "other machines may reach it, without TLS; --tls_certificate gives gRPC TLS, and --allow_plaintext says that "
                 "the network may be trusted");
}

absl::StatusOr<api::TlsFiles> ReadTls() {
  api::TlsFiles files = {.certificate = absl::GetFlag(FLAGS_tls_certificate),
                         .key = absl::GetFlag(FLAGS_tls_key),
                         .client_authority = absl::GetFlag(FLAGS_tls_client_authority)};
  if (files.certificate.empty() != files.key.empty()) {
    return BadFlag("tls_key", files.key, "--tls_certificate and --tls_key go together");
  }
  if (files.certificate.empty() && !files.client_authority.empty()) {
    return BadFlag("tls_client_authority", files.client_authority, "it needs --tls_certificate");
  }
  return files;
}

absl::Status CheckAtLeastASecond(std::string_view flag, absl::Duration value) {
  if (value >= absl::Seconds(1)) return absl::OkStatus();
  return BadFlag(flag, absl::FormatDuration(value), "it must be at least 1s");
}

absl::Status ReadConnectionLimits(api::ConnectionLimits& limits) {
  constexpr int kMost = std::numeric_limits<int>::max();
  limits.max_message_bytes = absl::GetFlag(FLAGS_max_message_bytes);
  RIDGELINE_RETURN_IF_ERROR(CheckRange<std::int64_t>("max_message_bytes", limits.max_message_bytes, 1, kMost));
  limits.max_streams_per_connection = absl::GetFlag(FLAGS_max_streams_per_connection);
  RIDGELINE_RETURN_IF_ERROR(CheckRange("max_streams_per_connection", limits.max_streams_per_connection, 1, kMost));
  limits.peer_timeout = absl::GetFlag(FLAGS_peer_timeout);
  RIDGELINE_RETURN_IF_ERROR(CheckAtLeastASecond("peer_timeout", limits.peer_timeout));
  limits.max_connection_age = absl::GetFlag(FLAGS_max_connection_age);
  return CheckAtLeastASecond("max_connection_age", limits.max_connection_age);
}

absl::Status ReadAdmission(engine::AdmissionLimits& limits) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  limits.max_queued_requests = absl::GetFlag(FLAGS_max_queued_requests);
  RIDGELINE_RETURN_IF_ERROR(CheckRange("max_queued_requests", limits.max_queued_requests, 0, std::numeric_limits<int>::max()));
  limits.max_queued_bytes = absl::GetFlag(FLAGS_max_queued_bytes);
  RIDGELINE_RETURN_IF_ERROR(CheckRange<std::int64_t>("max_queued_bytes", limits.max_queued_bytes, 1, kMost));
  limits.max_requests_per_client = absl::GetFlag(FLAGS_max_requests_per_client);
  RIDGELINE_RETURN_IF_ERROR(CheckRange<std::int64_t>("max_requests_per_client", limits.max_requests_per_client, 0, kMost));
  limits.max_bytes_per_client = absl::GetFlag(FLAGS_max_bytes_per_client);
  return CheckRange<std::int64_t>("max_bytes_per_client", limits.max_bytes_per_client, 0, kMost);
}

absl::Status ReadKvCacheLimits(engine::kv_cache::KvCacheOptions& options) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::int64_t max_pages_per_client = absl::GetFlag(FLAGS_max_kv_pages_per_client);
  const struct {
    std::string_view flag;
    std::int64_t value;
    std::int64_t& limit;
  } limits[] = {
      {"max_kv_caches", absl::GetFlag(FLAGS_max_kv_caches), options.max_caches},
      {"max_kv_caches_per_client", absl::GetFlag(FLAGS_max_kv_caches_per_client), options.max_caches_per_client},
      {"max_kv_sequences", absl::GetFlag(FLAGS_max_kv_sequences), options.max_sequences},
      {"max_kv_sequences_per_client", absl::GetFlag(FLAGS_max_kv_sequences_per_client), options.max_sequences_per_client},
      {"max_kv_pages_per_client", max_pages_per_client, options.max_pages_per_client},
  };
  for (const auto& [flag, value, limit] : limits) {
    RIDGELINE_RETURN_IF_ERROR(CheckRange<std::int64_t>(flag, value, 0, kMost));
    limit = value;
  }
  if (max_pages_per_client == 0) options.max_pages_per_client = kMost;
  options.shared_caches = absl::GetFlag(FLAGS_shared_kv_caches);
  return absl::OkStatus();
}

absl::Status ReadAllocator(device::AllocatorOptions& options) {
  options.growing_segments = absl::GetFlag(FLAGS_memory_growing_segments);
  options.rounding_divisions = absl::GetFlag(FLAGS_memory_rounding_divisions);
  const bool is_power_of_two = (options.rounding_divisions & (options.rounding_divisions - 1)) == 0;
  if (options.rounding_divisions < 0 || options.rounding_divisions > 64 || !is_power_of_two) {
    return BadFlag("memory_rounding_divisions", options.rounding_divisions, "it must be 0 or a power of two up to 64");
  }
  const std::int64_t max_split_bytes = absl::GetFlag(FLAGS_memory_max_split_bytes);
  const std::int64_t least_bytes = max_split_bytes == 0 ? 0 : std::int64_t{20} << 20;  // a segment of the large pool
  RIDGELINE_RETURN_IF_ERROR(CheckRange("memory_max_split_bytes", max_split_bytes, least_bytes, options.max_split_bytes));
  if (max_split_bytes > 0) options.max_split_bytes = max_split_bytes;
  options.history_events = absl::GetFlag(FLAGS_memory_history_events);
  return CheckRange<std::int64_t>("memory_history_events", options.history_events, 0, 10'000'000);
}

absl::Status ReadLog(DaemonConfig& config) {
  const std::string level = absl::GetFlag(FLAGS_log_level);
  const std::optional<base::LogLevel> least = base::ParseLogLevel(level);
  if (!least.has_value()) return BadFlag("log_level", level, "it must be debug, info, warning or error");
  const std::string format = absl::GetFlag(FLAGS_log_format);
  const std::optional<base::LogFormat> known = base::ParseLogFormat(format);
  if (!known.has_value()) return BadFlag("log_format", format, "it must be text or json");
  config.log_level = *least;
  config.log_format = *known;
  return absl::OkStatus();
}

std::string ReadCachePath() {
  const std::string path = absl::GetFlag(FLAGS_roofline_cache);
  if (path != "auto") return path;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return absl::StrCat(cache, "/ridgeline/roofline");
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return absl::StrCat(home, "/.cache/ridgeline/roofline");
  }
  return "";
}

}  // namespace

absl::StatusOr<DaemonConfig> ReadFlags() {
  constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  DaemonConfig config;
  RIDGELINE_RETURN_IF_ERROR(ReadDevice(absl::GetFlag(FLAGS_device), config));

  config.cpu.num_lanes = absl::GetFlag(FLAGS_lanes);
  RIDGELINE_RETURN_IF_ERROR(CheckRange("lanes", config.cpu.num_lanes, 1, 1024));
  config.cpu.num_threads = absl::GetFlag(FLAGS_threads);
  RIDGELINE_RETURN_IF_ERROR(CheckRange("threads", config.cpu.num_threads, 0, 4096));
  config.cpu.memory_limit_bytes = absl::GetFlag(FLAGS_memory_limit_bytes);
  RIDGELINE_RETURN_IF_ERROR(CheckRange<std::int64_t>("memory_limit_bytes", config.cpu.memory_limit_bytes, 0, kMaxInt64));
  config.cuda.num_lanes = config.cpu.num_lanes;
  config.cuda.memory_limit_bytes = config.cpu.memory_limit_bytes;
  config.cuda.pinned_limit_bytes = absl::GetFlag(FLAGS_pinned_limit_bytes);
  RIDGELINE_RETURN_IF_ERROR(CheckRange<std::int64_t>("pinned_limit_bytes", config.cuda.pinned_limit_bytes, 0, kMaxInt64));

  RIDGELINE_RETURN_IF_ERROR(ReadAllocator(config.cpu.allocator));
  config.cuda.allocator = config.cpu.allocator;

  RIDGELINE_RETURN_IF_ERROR(ReadAdmission(config.engine.admission));
  config.engine.batches.max_requests = absl::GetFlag(FLAGS_max_batch_requests);
  RIDGELINE_RETURN_IF_ERROR(CheckRange("max_batch_requests", config.engine.batches.max_requests, 1, kMaxInt));
  config.engine.batches.max_tokens = absl::GetFlag(FLAGS_max_batch_tokens);
  RIDGELINE_RETURN_IF_ERROR(CheckRange<std::int64_t>("max_batch_tokens", config.engine.batches.max_tokens, 1, kMaxInt64));
  RIDGELINE_RETURN_IF_ERROR(ReadKvCacheLimits(config.engine.kv_cache));
  const std::string policy = absl::GetFlag(FLAGS_serving_during_benchmarks);
  if (policy != "wait" && policy != "refuse") {
    return BadFlag("serving_during_benchmarks", policy, "it must be wait or refuse");
  }
  config.engine.serving_waits = policy == "wait";

  RIDGELINE_ASSIGN_OR_RETURN(config.grpc.addresses, ReadAddresses(absl::GetFlag(FLAGS_listen)));
  RIDGELINE_ASSIGN_OR_RETURN(config.grpc.tls, ReadTls());
  for (const std::string& address : config.grpc.addresses) {
    RIDGELINE_RETURN_IF_ERROR(CheckReach("listen", address, !config.grpc.tls.certificate.empty()));
  }
  RIDGELINE_RETURN_IF_ERROR(ReadConnectionLimits(config.grpc.limits));
  config.grpc.channelz = absl::GetFlag(FLAGS_channelz);

  config.metrics_address = absl::GetFlag(FLAGS_metrics_listen);
  if (!config.metrics_address.empty() && !IsHostAndPort(config.metrics_address)) {
    return BadFlag("metrics_listen", config.metrics_address, "it must be host:port, or empty");
  }
  if (!config.metrics_address.empty()) {
    RIDGELINE_RETURN_IF_ERROR(CheckReach("metrics_listen", config.metrics_address, /*is_encrypted=*/false));
  }
  config.drain_timeout = absl::GetFlag(FLAGS_drain_timeout);
  if (config.drain_timeout < absl::ZeroDuration()) {
    return BadFlag("drain_timeout", absl::FormatDuration(config.drain_timeout), "it must not be negative");
  }
  config.session_drain_timeout = absl::GetFlag(FLAGS_session_drain_timeout);
  if (config.session_drain_timeout < absl::ZeroDuration()) {
    return BadFlag("session_drain_timeout", absl::FormatDuration(config.session_drain_timeout), "it must not be negative");
  }
  config.roofline_cache = ReadCachePath();
  RIDGELINE_RETURN_IF_ERROR(ReadLog(config));
  return config;
}

}  // namespace ridgeline
