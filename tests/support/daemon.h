// A real daemon on real sockets, for tests: started with a unix socket, a TCP port and a metrics port, and ended with its
// object.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace ridgeline::support {

// A child process whose standard error is kept in a file. Killed by the destructor if it still runs.
class Process {
 public:
  explicit Process(std::vector<std::string> command);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Signal(int signal_number);
  // The exit status, 128 + n after signal n, or -1 if it still runs after `timeout`.
  int Wait(absl::Duration timeout);
  std::string standard_error() const;
  pid_t pid() const { return pid_; }

 private:
  std::string log_path_;
  pid_t pid_;
  bool reaped_ = false;
  int status_ = 0;
};

class Daemon {
 public:
  // `flags` come after the ones that set the addresses. Waits until it listens; the test process ends if that fails.
  explicit Daemon(const std::vector<std::string>& flags = {});
  ~Daemon();

  const std::string& unix_address() const { return unix_address_; }        // unix:/path
  const std::string& tcp_address() const { return tcp_address_; }          // 127.0.0.1:port
  const std::string& metrics_address() const { return metrics_address_; }  // 127.0.0.1:port
  const std::string& folder() const { return folder_; }                    // scratch of this daemon's
  Process& process() { return *process_; }

 private:
  void ReadAddresses();

  std::string folder_;
  std::string unix_address_, tcp_address_, metrics_address_;
  std::unique_ptr<Process> process_;
};

// Path of the daemon's program: RIDGELINE_DAEMON_PATH from the environment, for tests that were moved; else as it was built.
std::string DaemonProgram();

// What Daemon drives: RIDGELINE_TEST_DEVICE from the environment, else "cpu".
std::string TestDevice();

// Tokens of one float32 head whose flash attention keeps the test device busy for seconds.
std::int64_t LongTokens();

// The roofline is measured once for all daemons of a test run.
std::string SharedRooflineFlag();

struct HttpResponse {
  int code = 0;
  std::string body;
};

// One request over a plain socket; code 0 if nothing answers.
HttpResponse HttpRequest(const std::string& method, const std::string& address, const std::string& path);

}  // namespace ridgeline::support
