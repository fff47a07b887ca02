// What the fuzzers share: the daemon without its sockets, on a small CPU device, and what must hold for any bytes. Exactly one
// answer; tensors of an accepted request have the sizes that their shapes say; an error has a reason and is never INTERNAL; all
// memory comes back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/metrics.h"
#include "server/base/notification.h"
#include "server/device/buffer.h"
#include "server/device/device.h"
#include "server/engine/engine.h"
#include "server/engine/report.h"

namespace ridgeline::fuzz {

class SmallDaemon {
 public:
  // With a cache, kvCaches/c, and a sequence s in it, which the seeds name. Lives as long as the process.
  static SmallDaemon& Get();

  engine::Engine& engine() { return *engine_; }

  // Starts a call, by `start(done)`, waits for its answer and checks it, or cancels it when it takes long; then waits for an
  // idle device without allocations, from which the next input starts.
  template <typename Result, typename Start, typename Check>
  void Answer(const Start& start, const Check& check) {
    base::Notification answered;
    const std::shared_ptr<engine::Call> call = start([&](const absl::StatusOr<Result>& result) {
      if (result.ok()) {
        check(*result);
      } else {
        CheckError(result.status());
      }
      answered.Notify();  // a second answer aborts here
    });
    if (!answered.WaitWithTimeout(kPatience)) {
      call->Cancel();
      answered.Wait();
    }
    WaitUntilIdle();
  }

  static void CheckError(const absl::Status& status);
  static void CheckTensor(const engine::OutputTensor& tensor);

 private:
  // A random tensor of few bytes may be much work: it is given this long, then cancelled, which is worth fuzzing too.
  static constexpr absl::Duration kPatience = absl::Milliseconds(100);

  SmallDaemon();

  void WaitUntilIdle();

  base::MetricsRegistry metrics_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<engine::Engine> engine_;
  std::int64_t num_idle_allocations_;  // the cache's
};

// A request as the wire brings it. Its last byte says where it is cut in two, as if it had come in two pieces.
class Wire {
 public:
  Wire(const std::uint8_t* data, std::size_t size);

  const std::vector<device::HostSlice>& slices() const { return slices_; }
  std::shared_ptr<const void> owner() const { return bytes_; }

 private:
  std::shared_ptr<const std::string> bytes_;
  std::vector<device::HostSlice> slices_;
};

}  // namespace ridgeline::fuzz
