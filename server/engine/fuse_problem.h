// One fused operation, checked: what every step behind the gate may trust.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/fused/cost.h"
#include "kernels/fused/fused.h"
#include "server/engine/check_tensor.h"
#include "server/engine/kv_cache/kv_cache_store.h"
#include "server/engine/work.h"

namespace ridgeline::engine {

// Layouts are those of kernels::fused::FusedParams. Tensors that the request lacks have no elements.
struct FuseProblem {
  kernels::fused::FusedShape shape;
  std::optional<kernels::fused::Mode> requested_mode;

  TensorSource input;      // [R, N]
  TensorSource other;      // [R, N]
  TensorSource weight;     // [N]
  TensorSource bias;       // [N]
  TensorSource positions;  // [R]
  TensorSource key;        // [R, key_elems]
  TensorSource value;      // [R, value_elems]

  Shape output_shape;  // of every output
  bool discard = false;

  // Of an append.
  std::shared_ptr<const kv_cache::SequenceSelection> selection;
  std::vector<Access> accesses;
  std::int64_t longest_append_tokens = 0;  // of one sequence

  kernels::fused::Mode mode() const { return requested_mode.value_or(kernels::fused::Mode::kFused); }
  std::vector<const TensorSource*> sources() const { return {&input, &other, &weight, &bias, &positions, &key, &value}; }

  // Of the outputs; 0 for those that the operation or the request lacks. Saturate at INT64_MAX, as do the sums below.
  std::int64_t output_bytes() const;
  std::int64_t residual_output_bytes() const;
  std::int64_t mask_bytes() const;

  std::int64_t workspace_bytes(kernels::fused::Mode mode) const { return kernels::fused::WorkspaceBytes(shape, mode); }
  // Of inputs, outputs and workspace.
  std::int64_t device_bytes(kernels::fused::Mode mode) const;
  // Of the outputs that go back to the caller: none if they are discarded.
  std::int64_t answer_bytes() const;
};

}  // namespace ridgeline::engine
