#include "tests/support/session_proxy.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace ridgeline::support {
namespace {

constexpr char kProgram[] = "/usr/sbin/haproxy";
constexpr absl::Duration kStartTimeout = absl::Minutes(1);

std::string PortOf(const std::string& address) { return address.substr(address.rfind(':') + 1); }

// The configuration's parser takes no port 0.
int FreePort() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(probe, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::abort();
  }
  close(probe);
  return ntohs(address.sin_port);
}

// One line to a unix socket, and all that comes back.
std::string Ask(const std::string& path, const std::string& line) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string answer;
  const std::string text = absl::StrCat(line, "\n");
  if (connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      send(connection, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size())) {
    char buffer[4096];
    for (ssize_t count; (count = read(connection, buffer, sizeof(buffer))) > 0;)
      answer.append(buffer, static_cast<std::size_t>(count));
  }
  close(connection);
  return answer;
}

}  // namespace

std::string ProxyProgram() { return access(kProgram, X_OK) == 0 ? kProgram : ""; }

SessionProxy::SessionProxy(const std::vector<Daemon*>& nodes) : folder_(nodes.front()->folder()), num_nodes_(nodes.size()) {
  address_ = absl::StrCat("unix:", folder_, "/proxy.sock");
  environment_ = {absl::StrCat("RIDGELINE_PROXY_LISTEN=unix@", folder_, "/proxy.sock"),
                  absl::StrCat("RIDGELINE_PROXY_METRICS=unix@", folder_, "/metrics.sock"),
                  absl::StrCat("RIDGELINE_PROXY_ADMIN=", folder_, "/admin.sock"),
                  absl::StrCat("RIDGELINE_PROXY_PEER=127.0.0.1:", FreePort())};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    environment_.push_back(absl::StrCat("RIDGELINE_NODE", i + 1, "=", nodes[i]->tcp_address()));
    environment_.push_back(absl::StrCat("RIDGELINE_NODE", i + 1, "_METRICS=", PortOf(nodes[i]->metrics_address())));
  }
  process_ = Start({});
  AwaitNodes();
}

SessionProxy::~SessionProxy() = default;

std::string SessionProxy::Command(const std::string& command) const { return Ask(folder_ + "/admin.sock", command); }

void SessionProxy::AddNode(const std::string& name, const Daemon& node) {
  // What the configuration has as default-server does not hold for servers that come later.
  Command(absl::StrCat("add server nodes/", name, " ", node.tcp_address(), " proto h2 check inter 1s fall 3 rise 1", " port ",
                       PortOf(node.metrics_address())));
  Command(absl::StrCat("enable health nodes/", name));
  Command(absl::StrCat("enable server nodes/", name));
  AwaitUp(name);
}

void SessionProxy::Reload() {
  before_ = std::move(process_);
  process_ = Start({"-sf", absl::StrCat(before_->pid())});
  // The admin socket is the new one's when the old one has stopped listening.
  const std::string pid = absl::StrCat("Pid: ", process_->pid(), "\n");
  const absl::Time end = absl::Now() + kStartTimeout;
  while (!absl::StrContains(Command("show info"), pid)) {
    if (absl::Now() > end) {
      std::cerr << "the proxy did not reload:\n" << process_->standard_error();
      std::abort();
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
}

void SessionProxy::Restart() {
  process_.reset();
  process_ = Start({});
  AwaitNodes();
}

bool SessionProxy::IsUp(const std::string& name) const {
  for (const absl::string_view line : absl::StrSplit(Command("show stat nodes 4 -1"), '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
    constexpr std::size_t kServer = 1, kStatus = 17;
    if (fields.size() > kStatus && fields[kServer] == name) return fields[kStatus] == "UP";
  }
  return false;
}

std::unique_ptr<Process> SessionProxy::Start(const std::vector<std::string>& flags) const {
  std::vector<std::string> command = {"/usr/bin/env"};
  command.insert(command.end(), environment_.begin(), environment_.end());
  command.insert(command.end(), {ProxyProgram(), "-db", "-f", RIDGELINE_PROXY_CONFIGURATION});
  command.insert(command.end(), flags.begin(), flags.end());
  return std::make_unique<Process>(command);
}

void SessionProxy::AwaitNodes() const {
  for (std::size_t i = 1; i <= num_nodes_; ++i) AwaitUp(absl::StrCat("node", i));
}

void SessionProxy::AwaitUp(const std::string& name) const {
  const absl::Time end = absl::Now() + kStartTimeout;
  while (!IsUp(name)) {
    if (process_->Wait(absl::Milliseconds(10)) != -1 || absl::Now() > end) {
      std::cerr << "the proxy does not have " << name << ":\n" << process_->standard_error() << Command("show stat nodes 4 -1");
      std::abort();
    }
  }
}

}  // namespace ridgeline::support
