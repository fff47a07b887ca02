// One small attention on a device's first lane, from upload to download.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "server/device/device.h"

namespace ridgeline::device {

inline constexpr float kEqualRows = 0.5f;  // every element of query, key and value, and so of the output
inline constexpr float kUntouched = 7.0f;  // what the output holds before

// Of float32, one sequence and one head.
inline kernels::attention::AttentionShape OneHead(std::int64_t head_dim) {
  return {.data_type = kernels::DataType::kFloat32,
          .output_data_type = kernels::DataType::kFloat32,
          .num_sequences = 1,
          .query_heads = 1,
          .kv_heads = 1,
          .head_dim = head_dim,
          .value_head_dim = head_dim};
}

// The output; float32, one head, as many queries as keys. `phases`, which may be null, gets the names of the kernel's phases.
// After an error too all that was queued has completed.
absl::StatusOr<std::vector<float>> AttendEqualRows(Device& device, kernels::attention::Algorithm algorithm, CancelToken cancel,
                                                   std::vector<std::string>* phases = nullptr);

}  // namespace ridgeline::device
