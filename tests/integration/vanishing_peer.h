// A host on the way to a server that loses its network: what it forwards stops, and no connection is closed.
#pragma once

#include <atomic>
#include <string>
#include <thread>

namespace ridgeline::integration {

class VanishingPeer {
 public:
  // Forwards one connection to `server`, an IPv4 address with a port.
  explicit VanishingPeer(const std::string& server);
  ~VanishingPeer();  // closes both sides
  VanishingPeer(const VanishingPeer&) = delete;
  VanishingPeer& operator=(const VanishingPeer&) = delete;

  // Where it listens.
  const std::string& address() const { return address_; }
  // From now on nothing is read or written on either side.
  void Vanish() { vanished_ = true; }

 private:
  void Forward();
  // False: the connection is over.
  bool Move(int from, int to);

  std::string address_;
  int listener_ = -1;
  int client_ = -1;
  int server_ = -1;
  std::atomic<bool> vanished_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace ridgeline::integration
