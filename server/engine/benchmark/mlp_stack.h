// A stack of LayerNorm-linear-GELU-linear blocks in float32, forward and backward, keeping more or less of what the backward
// pass needs:
//
//   x ─layer norm─► h ─· w1ᵀ─► u ─gelu─► g ─· w2ᵀ─► y, the next block's x
//
// The loss is the sum of y * r, r random, so the last gradient is r.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/device/buffer.h"
#include "server/device/device.h"

namespace ridgeline::engine::benchmark {

struct MlpStackShape {
  std::int64_t tokens, width, hidden, blocks;
};

// What a block leaves for its backward pass.
enum class Keep : std::uint8_t {
  kAll,        // x, h, u, g
  kSelective,  // x and u, which cost a product; h and g are computed again
  kEvery,      // the x of every n-th block, from which n blocks are computed again
  kNone,       // nothing: each block is computed again from the stack's input on
  kHost,       // all, in the host's memory
};

struct KeepPolicy {
  Keep keep = Keep::kAll;
  std::int64_t every = 1;  // kEvery: n
};

// One block's parameters, or their gradients.
struct MlpBlock {
  device::Buffer norm_weight, norm_bias;  // [width]
  device::Buffer up, down;                // [hidden, width], [width, hidden]: w1, w2
};

// Everything the stack owns lives as long as it does; activations and their gradients are allocated as a pass is queued, and
// let go as soon as what needs them is queued. Thread-compatible.
class MlpStack {
 public:
  // Random input, parameters and last gradient. `uses_host`: for Keep::kHost. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::shared_ptr<MlpStack>> Create(device::Device& device, device::Lane& lane,
                                                          const MlpStackShape& shape, std::uint64_t seed, bool uses_host);

  // One forward and backward pass. Its gradients depend on the policy in no bit.
  absl::Status Queue(device::Lane& lane, const KeepPolicy& policy);

  const MlpStackShape& shape() const { return shape_; }
  const device::Buffer& input() const { return *input_; }
  const device::Buffer& output_gradient() const { return *output_gradient_; }
  const std::vector<MlpBlock>& parameters() const { return parameters_; }

  // Of the last pass.
  const std::vector<MlpBlock>& gradients() const { return gradients_; }
  const device::Buffer& input_gradient() const { return *input_gradient_; }

 private:
  using Tensor = std::shared_ptr<device::Buffer>;
  struct Activations {
    Tensor x, h, u, g;  // null where they are not kept
    Tensor y;           // only while the next block needs it
  };

  explicit MlpStack(const MlpStackShape& shape) : shape_(shape) {}
  absl::Status Allocate(device::Device& device, device::Lane& lane, std::uint64_t seed, bool uses_host);

  absl::Status Forward(device::Lane& lane, const KeepPolicy& policy, std::vector<Activations>& kept);
  absl::Status KeepBlock(device::Lane& lane, const KeepPolicy& policy, std::int64_t block, Activations all, Activations& kept);
  // All that a block's backward pass needs.
  absl::StatusOr<Activations> Recall(device::Lane& lane, const KeepPolicy& policy, std::int64_t block,
                                     std::vector<Activations>& kept);
  absl::StatusOr<Activations> RunBlock(device::Lane& lane, std::int64_t block, Tensor x);
  absl::StatusOr<Activations> RunFromInput(device::Lane& lane, std::int64_t block);
  absl::Status RunSegment(device::Lane& lane, std::int64_t begin, std::int64_t end, std::vector<Activations>& kept);
  absl::StatusOr<Activations> FetchFromHost(device::Lane& lane, std::int64_t block);
  // The gradient of the block's input, given that of its output.
  absl::StatusOr<Tensor> Backward(device::Lane& lane, std::int64_t block, const Activations& activations, const Tensor& dy);

  absl::StatusOr<Tensor> NormOf(device::Lane& lane, std::int64_t block, const Tensor& x);
  absl::StatusOr<Tensor> GeluOf(device::Lane& lane, const Tensor& u);
  absl::StatusOr<Tensor> AllocateTensor(device::Lane& lane, std::int64_t columns) const;

  const MlpStackShape shape_;
  std::vector<MlpBlock> parameters_, gradients_;  // [blocks]
  Tensor input_, output_gradient_, input_gradient_;
  device::Buffer workspace_;
  std::shared_ptr<void> host_;  // [blocks]: x, h, u and g of each; null: unused
};

// Floating-point operations of the products of one pass: by far the most.
std::int64_t CountMlpFlops(const MlpStackShape& shape, const KeepPolicy& policy);
// What its steps read and write, each tensor once a step.
std::int64_t CountMlpBytes(const MlpStackShape& shape, const KeepPolicy& policy);

}  // namespace ridgeline::engine::benchmark
