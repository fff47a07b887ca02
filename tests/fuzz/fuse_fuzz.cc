// The Fuse path without a socket: bytes to message to validation to a small CPU device and back.
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "server/api/fuse_converter.h"
#include "server/engine/engine.h"
#include "tests/fuzz/small_daemon.h"

using ridgeline::engine::FuseRequest;
using ridgeline::engine::FuseResult;
using ridgeline::fuzz::SmallDaemon;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  SmallDaemon& daemon = SmallDaemon::Get();
  const ridgeline::fuzz::Wire wire(data, size);
  absl::StatusOr<FuseRequest> request = ridgeline::api::ParseFuseRequest(wire.slices(), wire.owner());
  if (!request.ok()) {
    SmallDaemon::CheckError(request.status());
    return 0;
  }
  daemon.Answer<FuseResult>(
      [&](ridgeline::engine::FuseDone done) { return daemon.engine().Fuse(*std::move(request), {}, std::move(done)); },
      [](const FuseResult& result) {
        for (const ridgeline::engine::OutputTensor& output : result.outputs) SmallDaemon::CheckTensor(output);
      });
  return 0;
}
