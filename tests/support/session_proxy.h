// HAProxy as deploy/haproxy configures it, in front of daemons.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/daemon.h"

namespace ridgeline::support {

// Where Debian's package has HAProxy; empty if it isn't there.
std::string ProxyProgram();

class SessionProxy {
 public:
  // As many nodes as the configuration names: three. Waits until it takes all of them for ready; the test process ends if that
  // fails. The daemons may die, their objects may not.
  explicit SessionProxy(const std::vector<Daemon*>& nodes);
  ~SessionProxy();

  const std::string& address() const { return address_; }  // unix:/path

  // A command to the running proxy, as an operator gives it, and what it says to it.
  std::string Command(const std::string& command) const;
  // A node beside those of the configuration, until the next reload; ready when this returns.
  void AddNode(const std::string& name, const Daemon& node);
  // Starts a proxy that takes over from the running one, which ends when its connections have.
  void Reload();
  // The same without handing anything over: the running one is killed.
  void Restart();
  // Whether new sessions may go to the node.
  bool IsUp(const std::string& name) const;

 private:
  std::unique_ptr<Process> Start(const std::vector<std::string>& flags) const;
  // The test process ends if it does not become up.
  void AwaitUp(const std::string& name) const;
  void AwaitNodes() const;

  std::string folder_;
  std::string address_;
  std::vector<std::string> environment_;  // NAME=value
  std::size_t num_nodes_;                 // of the configuration
  std::unique_ptr<Process> before_;       // the one that was reloaded
  std::unique_ptr<Process> process_;
};

}  // namespace ridgeline::support
