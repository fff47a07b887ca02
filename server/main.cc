// ridgelined: reads flags, builds the rooms' objects, hands each its parts, waits for a signal, drains.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "server/abandon_service.h"
#include "server/api/grpc_server.h"
#include "server/api/metrics_server.h"
#include "server/api/self_call.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/status_macros.h"
#include "server/base/version.h"
#include "server/device/select_device.h"
#include "server/engine/engine.h"
#include "server/engine/roofline.h"
#include "server/flags.h"

namespace ridgeline {
namespace {

using base::Log;
using base::LogLevel;

// Where it is said why the daemon ends: a byte with a signal's number, or kDeviceLost. A signal's handler has no other way to
// know of anything, and blocked signals with sigwait are none: libraries start threads of their own before main does, in which
// the signals stay unblocked.
int end_pipe[2];

constexpr int kDeviceLost = 0;

void End(int why) {
  const auto byte = static_cast<char>(why);
  if (write(end_pipe[1], &byte, 1) != 1) _exit(EXIT_FAILURE);
}

absl::Status CatchSignals() {
  if (pipe2(end_pipe, O_CLOEXEC) != 0) return absl::UnavailableError("no pipe for signals could be made");
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a log that may not grow is like a full disk: no reason to end
  struct sigaction action = {};
  action.sa_handler = End;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  return absl::OkStatus();
}

int WaitForEnd() {
  char byte = 0;
  while (read(end_pipe[0], &byte, 1) != 1) continue;
  return byte;
}

// A second signal means: now. So does a device that is lost while draining.
void ExitOnNextEnd() {
  std::thread([] {
    WaitForEnd();
    Log(LogLevel::kWarning, "ending without draining");
    _exit(EXIT_FAILURE);
  }).detach();
}

// What the daemon consists of, in the order in which it is built; destroyed in reverse.
struct Daemon {
  base::MetricsRegistry registry;
  api::SelfCall self_call;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<api::MetricsServer> metrics_server;
  std::unique_ptr<api::GrpcServer> grpc_server;
};

// A start that fails says which flag to look at.
absl::Status Annotate(const absl::Status& status, absl::string_view flag) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("--", flag, ": ", status.message()));
}

// Tells this start of the daemon from all others: caches of one are not another's.
std::string MakeInstanceId() {
  std::random_device device;
  return absl::StrFormat("%08x%08x", device(), device());
}

absl::Status Start(const DaemonConfig& config, Daemon& daemon) {
  auto selected = device::SelectDevice(config.device, config.cpu, config.cuda);
  RIDGELINE_RETURN_IF_ERROR(Annotate(selected.status(), "device"));
  daemon.device = std::move(selected->device);
  const device::DeviceInfo& info = daemon.device->info();
  Log(LogLevel::kInfo, "device",
      {{"name", info.name},
       {"instruction_set", info.instruction_set},
       {"compute_units", info.compute_units},
       {"lanes", daemon.device->num_lanes()},
       {"memory_limit_bytes", info.memory_limit_bytes},
       {"reason", selected->reason}});
  RIDGELINE_ASSIGN_OR_RETURN(engine::Roofline roofline, engine::LoadOrMeasureRoofline(*daemon.device, config.roofline_cache));
  daemon.device->ResetPeakMemoryStats();
  engine::EngineOptions options = config.engine;
  options.kv_cache.instance_id = MakeInstanceId();
  options.kv_cache.max_arena_bytes = info.memory_limit_bytes;
  options.empty_call = [&self_call = daemon.self_call] { return self_call.Run(); };
  daemon.engine = engine::CreateEngine(options, *daemon.device, std::move(roofline), daemon.registry, base::Clock::Real());
  api::GrpcServerOptions grpc = config.grpc;
  grpc.instance_id = options.kv_cache.instance_id;
  grpc.device_selection_reason = selected->reason;
  auto grpc_server = api::StartGrpcServer(grpc, *daemon.engine, daemon.registry);
  RIDGELINE_RETURN_IF_ERROR(Annotate(grpc_server.status(), "listen"));
  daemon.grpc_server = *std::move(grpc_server);
  daemon.self_call.Connect(daemon.grpc_server->addresses(), /*has_tls=*/!grpc.tls.certificate.empty());
  if (!config.metrics_address.empty()) {
    auto metrics_server = api::StartMetricsServer(config.metrics_address, daemon.registry, *daemon.engine);
    RIDGELINE_RETURN_IF_ERROR(Annotate(metrics_server.status(), "metrics_listen"));
    daemon.metrics_server = *std::move(metrics_server);
  }
  return absl::OkStatus();
}

void Announce(const Daemon& daemon) {
  for (const std::string& address : daemon.grpc_server->addresses()) {
    Log(LogLevel::kInfo, "listening", {{"service", "grpc"}, {"address", address}});
  }
  if (daemon.metrics_server != nullptr) {
    Log(LogLevel::kInfo, "listening", {{"service", "metrics"}, {"address", daemon.metrics_server->address()}});
  }
}

// The sessions that there are go on until their clients or their leases end them, within the timeout.
void DrainSessions(absl::Duration timeout, Daemon& daemon) {
  if (daemon.engine->DrainSessions(timeout)) return;
  Log(LogLevel::kWarning, "sessions cut off", {{"kv_caches", daemon.engine->kv_caches().statistics().caches}});
}

// No new work; what was admitted is answered within the timeout.
bool Drain(absl::Duration timeout, Daemon& daemon) {
  const absl::Time deadline = base::Clock::Real().Now() + timeout;
  const bool finished = daemon.engine->Drain(timeout);
  // Answers are still on their way to their readers; idle streams are closed after a moment.
  constexpr absl::Duration kFlush = absl::Seconds(5);
  daemon.grpc_server->Shutdown(std::min(kFlush, std::max(deadline - base::Clock::Real().Now(), absl::Milliseconds(100))));
  return finished;
}

int Run() {
  absl::StatusOr<DaemonConfig> config = ReadFlags();
  if (!config.ok()) {
    Log(LogLevel::kError, "cannot start", {{"error", config.status().message()}});
    return EXIT_FAILURE;
  }
  base::ConfigureLog(config->log_level, config->log_format);
  Log(LogLevel::kInfo, "starting", {{"version", std::string(base::Version())}, {"pid", getpid()}});
  Daemon daemon;
  absl::Status started = CatchSignals();
  if (started.ok()) started = Start(*config, daemon);
  if (!started.ok()) {
    Log(LogLevel::kError, "cannot start", {{"error", started.message()}});
    return EXIT_FAILURE;
  }
  daemon.grpc_server->SetServing(true);
  daemon.device->OnLost([](const absl::Status&) { End(kDeviceLost); });
  Announce(daemon);

  const int why = WaitForEnd();
  if (why == kDeviceLost) {
    constexpr absl::Duration kLimit = absl::Seconds(10);
    AbandonService(daemon.device->health(), kLimit, *daemon.engine, *daemon.grpc_server);
    // Without destructors: what they would give back is the lost device's, and goes with the process.
    _exit(EXIT_FAILURE);
  }
  Log(LogLevel::kInfo, "draining",
      {{"signal", why},
       {"session_timeout", absl::FormatDuration(config->session_drain_timeout)},
       {"timeout", absl::FormatDuration(config->drain_timeout)}});
  ExitOnNextEnd();
  daemon.grpc_server->SetServing(false);
  if (config->session_drain_timeout > absl::ZeroDuration()) DrainSessions(config->session_drain_timeout, daemon);
  const bool finished = Drain(config->drain_timeout, daemon);
  Log(finished ? LogLevel::kInfo : LogLevel::kWarning, "stopped", {{"all_work_finished", finished ? "true" : "false"}});
  return finished ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace ridgeline

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "serves attention over gRPC and measures the device that it runs on.\nUsage: ridgelined [flags]; --help lists them.");
  absl::ParseCommandLine(argc, argv);
  return ridgeline::Run();
}
