#include "tests/integration/raw_http2.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/time/clock.h"
#include "server/base/check.h"

namespace ridgeline::integration {
namespace {

// HPACK's plainest form: neither indexed nor compressed (RFC 7541, section 6.2.2).
std::string Header(std::string_view name, std::string_view value) {
  std::string bytes(1, '\0');
  for (const std::string_view text : {name, value}) {
    RIDGELINE_CHECK(text.size() < 127);
    bytes += static_cast<char>(text.size());
    bytes += text;
  }
  return bytes;
}

std::string BigEndian(std::uint32_t number, int num_bytes) {
  std::string bytes;
  for (int byte = num_bytes - 1; byte >= 0; --byte) bytes += static_cast<char>(number >> (8 * byte));
  return bytes;
}

}  // namespace

std::string Frame(char type, char flags, std::uint32_t stream, std::string_view payload) {
  std::string bytes = BigEndian(static_cast<std::uint32_t>(payload.size()), 3);
  bytes += type;
  bytes += flags;
  bytes += BigEndian(stream, 4);
  bytes += payload;
  return bytes;
}

std::string BeginCall(std::uint32_t stream, std::string_view method) {
  return Frame(kHeadersFrame, kEndHeadersFlag, stream,
               Header(":method", "POST") + Header(":scheme", "http") + Header(":path", method) + Header(":authority", "test") +
                   Header("te", "trailers") + Header("content-type", "application/grpc"));
}

RawHttp2::RawHttp2(const std::string& address) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  target.sin_port = htons(static_cast<std::uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
  RIDGELINE_CHECK(connect(socket_, reinterpret_cast<const sockaddr*>(&target), sizeof(target)) == 0);
}

RawHttp2::~RawHttp2() { close(socket_); }

void RawHttp2::SayHello() { Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettingsFrame, 0, 0, "")); }

bool RawHttp2::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool RawHttp2::AwaitClose(absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  char bytes[1 << 16];
  while (absl::Now() < end) {
    pollfd readable = {socket_, POLLIN, 0};
    if (poll(&readable, 1, /*timeout=*/100) == 0) continue;
    const ssize_t size = read(socket_, bytes, sizeof(bytes));
    if (size <= 0) return true;
    received_.append(bytes, static_cast<std::size_t>(size));
  }
  return false;
}

}  // namespace ridgeline::integration
