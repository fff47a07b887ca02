// The Attend path without a socket: bytes to message to validation to a small CPU device and back.
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "server/api/attend_converter.h"
#include "server/engine/engine.h"
#include "tests/fuzz/small_daemon.h"

using ridgeline::engine::AttendRequest;
using ridgeline::engine::AttendResult;
using ridgeline::fuzz::SmallDaemon;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  SmallDaemon& daemon = SmallDaemon::Get();
  const ridgeline::fuzz::Wire wire(data, size);
  absl::StatusOr<AttendRequest> request = ridgeline::api::ParseAttendRequest(wire.slices(), wire.owner());
  if (!request.ok()) {
    SmallDaemon::CheckError(request.status());
    return 0;
  }
  daemon.Answer<AttendResult>(
      [&](ridgeline::engine::AttendDone done) { return daemon.engine().Attend(*std::move(request), {}, std::move(done)); },
      [](const AttendResult& result) {
        if (result.output.has_value()) SmallDaemon::CheckTensor(*result.output);
        if (result.log_sum_exp.has_value()) SmallDaemon::CheckTensor(*result.log_sum_exp);
      });
  return 0;
}
