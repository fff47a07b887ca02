#include "tests/integration/vanishing_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "server/base/check.h"

namespace ridgeline::integration {
namespace {

constexpr int kLookAgainMs = 10;  // whether it has vanished or is to stop

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

}  // namespace

VanishingPeer::VanishingPeer(const std::string& server) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in own = Loopback(0);
  socklen_t size = sizeof(own);
  RIDGELINE_CHECK(bind(listener_, reinterpret_cast<const sockaddr*>(&own), size) == 0 && listen(listener_, 1) == 0);
  RIDGELINE_CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size) == 0);
  address_ = absl::StrCat("127.0.0.1:", ntohs(own.sin_port));
  server_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in other = Loopback(std::atoi(server.c_str() + server.rfind(':') + 1));
  RIDGELINE_CHECK(connect(server_, reinterpret_cast<const sockaddr*>(&other), sizeof(other)) == 0);
  thread_ = std::thread([this] { Forward(); });
}

VanishingPeer::~VanishingPeer() {
  stopping_ = true;
  thread_.join();
  for (const int socket : {listener_, client_, server_}) {
    if (socket >= 0) close(socket);
  }
}

void VanishingPeer::Forward() {
  while (!stopping_) {
    pollfd waiting[] = {{listener_, POLLIN, 0}, {client_, POLLIN, 0}, {server_, POLLIN, 0}};
    if (client_ >= 0) waiting[0].fd = -1;  // one connection
    if (client_ < 0) waiting[2].fd = -1;   // until then the server's bytes wait
    if (vanished_) waiting[1].fd = waiting[2].fd = -1;
    poll(waiting, std::size(waiting), kLookAgainMs);
    if (waiting[0].revents != 0) client_ = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (waiting[1].revents != 0 && !Move(client_, server_)) return;
    if (waiting[2].revents != 0 && !Move(server_, client_)) return;
  }
}

bool VanishingPeer::Move(int from, int to) {
  char bytes[1 << 16];
  const ssize_t size = read(from, bytes, sizeof(bytes));
  for (ssize_t sent = 0; sent < size && !vanished_ && !stopping_;) {
    pollfd room = {to, POLLOUT, 0};
    if (poll(&room, 1, kLookAgainMs) == 0) continue;
    const ssize_t written = send(to, bytes + sent, static_cast<std::size_t>(size - sent), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0) return false;
    sent += written;
  }
  return size > 0;
}

}  // namespace ridgeline::integration
