#include "tests/resilience/rude_peers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <random>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "grpcpp/grpcpp.h"
#include "ridgeline/v1/attention.grpc.pb.h"
#include "tests/integration/random_attend.h"

namespace ridgeline::resilience {
namespace {

constexpr std::int64_t kTokensOfUnread = 1'000;
constexpr std::int64_t kHeadsOfUnread = 4;  // 1 MB an answer
constexpr absl::Duration kLifeOfUnread = absl::Seconds(2);
constexpr std::size_t kHalfOpen = 64;  // at a time
constexpr int kBurst = 32;
constexpr absl::Duration kPause = absl::Milliseconds(50);

// A connected socket, -1 if there is none to be had.
int Connect(const std::string& address) {
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  target.sin_port = htons(static_cast<std::uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(connection, reinterpret_cast<const sockaddr*>(&target), sizeof(target)) == 0) return connection;
  close(connection);
  return -1;
}

void Close(int connection, bool by_reset) {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  if (by_reset) setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close(connection);
}

}  // namespace

std::vector<std::string> Beginnings() {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string no_settings("\0\0\0\4\0\0\0\0\0", 9);            // a frame: 0 bytes, SETTINGS
  const std::string headers_to_come("\0\0\100\1\4\0\0\0\1", 9);      // a frame: 64 bytes, HEADERS of stream 1
  const std::string frame_too_large("\377\377\377\0\0\0\0\0\1", 9);  // a frame: 16 MiB, DATA of stream 1
  return {"",
          preface.substr(0, 10),
          preface,
          preface + no_settings.substr(0, 5),
          preface + no_settings,
          preface + no_settings + headers_to_come,
          preface + no_settings + frame_too_large,
          "GET / HTTP/1.1\r\n",
          std::string(100, '\377')};
}

bool IsClosedAfter(const std::string& beginning, const std::string& address, absl::Duration patience) {
  const int connection = Connect(address);
  send(connection, beginning.data(), beginning.size(), MSG_NOSIGNAL);
  const absl::Time end = absl::Now() + patience;
  bool is_closed = false;
  while (!is_closed && absl::Now() < end) {
    char bytes[4096];  // settings, pings
    pollfd readable = {connection, POLLIN, 0};
    if (poll(&readable, 1, /*timeout=*/50) > 0) is_closed = read(connection, bytes, sizeof(bytes)) <= 0;
  }
  close(connection);
  return is_closed;
}

void NeverRead(const std::string& address, const std::atomic<bool>& ends) {
  const v1::AttendRequest request = RandomAttend(kTokensOfUnread, v1::ALGORITHM_UNSPECIFIED, kHeadsOfUnread);
  while (!ends) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub =
        v1::AttentionService::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kLifeOfUnread));
    const auto stream = stub->AttendStream(&context);
    // Ends with the deadline: the server reads no more, so writes wait.
    while (!ends && stream->Write(request)) continue;
    context.TryCancel();
    stream->Finish();
    absl::SleepFor(kPause);
  }
}

void SayHalf(const std::string& address, std::uint64_t seed, const std::atomic<bool>& ends) {
  const std::vector<std::string> beginnings = Beginnings();
  std::mt19937_64 generator(seed);
  std::deque<int> connections;
  while (!ends || !connections.empty()) {
    if (!connections.empty() && (ends || connections.size() == kHalfOpen)) {
      Close(connections.front(), /*by_reset=*/generator() % 2 == 0);
      connections.pop_front();
      continue;
    }
    const int connection = Connect(address);
    if (connection >= 0) {
      const std::string& beginning = beginnings[generator() % beginnings.size()];
      send(connection, beginning.data(), beginning.size(), MSG_NOSIGNAL);
      connections.push_back(connection);
    }
    absl::SleepFor(kPause / 5);
  }
}

void Storm(const std::string& address, Tally& tally, const std::atomic<bool>& ends) {
  client::ClientOptions options;
  options.timeout = absl::Minutes(1);
  options.retry.max_attempts = 1;
  options.own_connection = true;
  while (!ends) {
    std::vector<client::Client> clients;
    for (int i = 0; i < kBurst; ++i) {
      if (const int connection = Connect(address); connection >= 0) Close(connection, /*by_reset=*/i % 2 == 0);
      clients.push_back(*client::Client::Create(address, options));
    }
    for (const client::Client& client : clients) {
      const absl::Time begin = absl::Now();
      const auto load = client.GetLoad();
      if (load.ok()) {
        tally.NoteAnswer("GetLoad", load->lanes() > 0, absl::Now() - begin);
      } else {
        tally.NoteError("GetLoad", load.status(), Tally::Hurry::kNone);
      }
    }
    absl::SleepFor(kPause);
  }
}

}  // namespace ridgeline::resilience
