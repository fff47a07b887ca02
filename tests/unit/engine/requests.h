// Requests for the engine's tests, and a way to wait for their answers.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/device/device.h"
#include "server/engine/engine.h"
#include "tests/support/attention_case.h"

namespace ridgeline::engine {

// Elements made by the device.
Tensor RandomTensor(std::vector<std::int64_t> shape, std::uint64_t seed, kernels::DataType type = kernels::DataType::kFloat32);

// Bytes of the caller's, which must outlive the request.
Tensor InlineTensor(std::vector<std::int64_t> shape, kernels::DataType type, std::span<const std::byte> bytes);

// A small request that is all right: dense, B 2, Sq 3, Sk 5, 4 heads on 2, D 8.
AttendRequest SmallRequest();

// Dense float32 self-attention of one sequence with random elements.
AttendRequest RandomRequest(std::int64_t tokens, std::int64_t heads, kernels::attention::Algorithm algorithm);

// The case as a request; the case keeps the bytes.
AttendRequest RequestOf(support::AttentionCase& attention_case);

// A call's one answer. Fails the test if a second comes.
class Answer {
 public:
  Answer();

  AttendDone Callback();
  bool arrived() const;
  const absl::StatusOr<AttendResult>& Wait() const;  // at most a minute, then the process ends

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// A roofline that nobody measured.
Roofline MadeUpRoofline();

// A CPU device for tests: two threads, 256 MiB.
std::unique_ptr<device::Device> MakeDevice(int num_lanes);

// Waits until the device holds no allocation; false after ten seconds.
bool AllMemoryReturns(const device::Device& device);

}  // namespace ridgeline::engine
