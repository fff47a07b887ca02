#include "tests/support/daemon.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace ridgeline::support {
namespace {

constexpr absl::Duration kStartTimeout = absl::Minutes(2);

std::string MakeFolder() {
  std::string folder = std::filesystem::temp_directory_path() / "ridgeline_test.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) std::abort();
  return folder;
}

std::string UniquePath(const char* name) {
  static std::atomic<int> count{0};
  return std::filesystem::temp_directory_path() / absl::StrCat("ridgeline_", name, ".", getpid(), ".", count.fetch_add(1));
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Of a log line that says where the daemon listens, in either format; empty for others.
std::string ListeningAddress(const std::string& line) {
  for (const auto& [message, key, end] :
       {std::tuple("msg=listening", " address=", "\n"), std::tuple("\"msg\":\"listening\"", "\"address\":\"", "\"")}) {
    const std::size_t at = line.find(key);
    if (!absl::StrContains(line, message) || at == std::string::npos) continue;
    const std::size_t begin = at + std::strlen(key);
    return line.substr(begin, line.find(end, begin) - begin);
  }
  return "";
}

[[noreturn]] void Exec(const std::vector<std::string>& command, const std::string& log_path) {
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  _exit(127);
}

}  // namespace

Process::Process(std::vector<std::string> command) : log_path_(UniquePath("log")), pid_(fork()) {
  if (pid_ == 0) Exec(command, log_path_);
  if (pid_ < 0) std::abort();
}

Process::~Process() {
  if (Wait(absl::ZeroDuration()) == -1) {
    Signal(SIGKILL);
    Wait(absl::InfiniteDuration());
  }
  std::filesystem::remove(log_path_);
}

void Process::Signal(int signal_number) {
  if (!reaped_) kill(pid_, signal_number);
}

int Process::Wait(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!reaped_) {
    if (waitpid(pid_, &status_, WNOHANG) == pid_) {
      reaped_ = true;
    } else if (absl::Now() >= deadline) {
      return -1;
    } else {
      absl::SleepFor(absl::Milliseconds(5));
    }
  }
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

std::string Process::standard_error() const { return ReadFile(log_path_); }

Daemon::Daemon(const std::vector<std::string>& flags) : folder_(MakeFolder()) {
  std::vector<std::string> command = {DaemonProgram(), absl::StrCat("--listen=unix:", folder_, "/s.sock,127.0.0.1:0"),
                                      "--metrics_listen=127.0.0.1:0", absl::StrCat("--device=", TestDevice()),
                                      SharedRooflineFlag()};
  command.insert(command.end(), flags.begin(), flags.end());
  process_ = std::make_unique<Process>(command);
  const absl::Time deadline = absl::Now() + kStartTimeout;
  while (metrics_address_.empty()) {
    if (process_->Wait(absl::Milliseconds(10)) != -1 || absl::Now() > deadline) {
      std::cerr << "the daemon did not start:\n" << process_->standard_error();
      std::abort();
    }
    ReadAddresses();
  }
}

Daemon::~Daemon() {
  process_.reset();
  std::filesystem::remove_all(folder_);
}

void Daemon::ReadAddresses() {
  const std::vector<std::string> lines = absl::StrSplit(process_->standard_error(), '\n');
  for (const std::string& line : lines) {
    const std::string address = ListeningAddress(line);
    if (address.empty()) continue;
    if (absl::StrContains(line, "metrics")) {
      metrics_address_ = address;
    } else {
      (address.rfind("unix:", 0) == 0 ? unix_address_ : tcp_address_) = address;
    }
  }
}

std::string DaemonProgram() {
  const char* const moved = std::getenv("RIDGELINE_DAEMON_PATH");
  return moved != nullptr ? moved : RIDGELINE_DAEMON;
}

std::string TestDevice() {
  const char* const device = std::getenv("RIDGELINE_TEST_DEVICE");
  return device != nullptr ? device : "cpu";
}

std::int64_t LongTokens() { return TestDevice() == "cpu" ? 60'000 : 500'000; }

std::string SharedRooflineFlag() {
  return absl::StrCat("--roofline_cache=", (std::filesystem::temp_directory_path() / "ridgeline_test_roofline").string());
}

HttpResponse HttpRequest(const std::string& method, const std::string& address, const std::string& path) {
  const std::size_t colon = address.rfind(':');
  int port = 0;
  sockaddr_in target{};
  target.sin_family = AF_INET;
  if (!absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      inet_pton(AF_INET, address.substr(0, colon).c_str(), &target.sin_addr) != 1) {
    return {};
  }
  target.sin_port = htons(static_cast<std::uint16_t>(port));
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string text;
  if (connect(connection, reinterpret_cast<const sockaddr*>(&target), sizeof(target)) == 0) {
    const std::string request = absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    if (write(connection, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
      char buffer[4096];
      for (ssize_t size; (size = read(connection, buffer, sizeof(buffer))) > 0;)
        text.append(buffer, static_cast<std::size_t>(size));
    }
  }
  close(connection);
  HttpResponse response;
  const std::size_t body = text.find("\r\n\r\n");
  if (text.rfind("HTTP/1.1 ", 0) != 0 || body == std::string::npos) return response;
  response.code = std::atoi(text.c_str() + 9);
  response.body = text.substr(body + 4);
  return response;
}

}  // namespace ridgeline::support
