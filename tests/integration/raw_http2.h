// A peer that speaks HTTP/2 frame by frame, and so may break what gRPC's own clients keep to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace ridgeline::integration {

// RFC 9113, section 6.
inline constexpr char kHeadersFrame = 1;
inline constexpr char kResetStreamFrame = 3;
inline constexpr char kSettingsFrame = 4;
inline constexpr char kPingFrame = 6;
inline constexpr char kGoAwayFrame = 7;
inline constexpr char kEndHeadersFlag = 4;

std::string Frame(char type, char flags, std::uint32_t stream, std::string_view payload);

// HEADERS that begin a gRPC call of the method "/package.Service/Method".
std::string BeginCall(std::uint32_t stream, std::string_view method);

class RawHttp2 {
 public:
  // Connects to 127.0.0.1:port; says nothing yet.
  explicit RawHttp2(const std::string& address);
  ~RawHttp2();
  RawHttp2(const RawHttp2&) = delete;
  RawHttp2& operator=(const RawHttp2&) = delete;

  // The preface and empty settings.
  void SayHello();
  // False: the server has hung up.
  bool Send(std::string_view bytes);
  // Until the server hangs up; false if it has not by then. What it said until now is in received().
  bool AwaitClose(absl::Duration timeout);
  const std::string& received() const { return received_; }

 private:
  const int socket_;
  std::string received_;
};

}  // namespace ridgeline::integration
