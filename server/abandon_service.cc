#include "server/abandon_service.h"

#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "server/base/log.h"
#include "server/base/notification.h"

namespace ridgeline {
namespace {

using base::Log;
using base::LogLevel;

// Ends the process unless it is destroyed in time.
class Watchdog {
 public:
  explicit Watchdog(absl::Duration limit)
      : thread_([this, limit] {
          if (finished_.WaitWithTimeout(limit)) return;
          Log(LogLevel::kError, "ending with work in flight: the lost device holds it");
          _exit(EXIT_FAILURE);
        }) {}
  ~Watchdog() {
    finished_.Notify();
    thread_.join();
  }

 private:
  base::Notification finished_;
  std::thread thread_;
};

}  // namespace

void AbandonService(const absl::Status& cause, absl::Duration limit, engine::Engine& engine, api::GrpcServer& grpc_server) {
  // For answers to reach their readers, and a watcher of the health service to hear of it.
  constexpr absl::Duration kFlush = absl::Seconds(1);
  grpc_server.SetServing(false);
  Log(LogLevel::kError, "device lost", {{"error", cause.message()}});
  const Watchdog watchdog(limit);
  engine.Drain(limit);
  grpc_server.Shutdown(kFlush);
}

}  // namespace ridgeline
