// Whether a block's results are right.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/attention_row.h"
#include "server/engine/benchmark/fused_check.h"
#include "server/engine/benchmark/pieces.h"
#include "server/engine/benchmark/transformer_block.h"

namespace ridgeline::engine::benchmark {
namespace {

using kernels::DataType;

constexpr std::int64_t kColumnStep = 61;  // of products, between columns that are checked: a prime

// Half a unit in the last place, as a share.
double Roundoff(DataType type) {
  if (type == DataType::kFloat16) return 0x1p-11;
  return type == DataType::kBFloat16 ? 0x1p-8 : 0x1p-24;
}

}  // namespace

absl::StatusOr<HostTensor> TransformerBlock::Read(device::Lane& lane, TensorName name) const {
  return HostTensor::Read(lane, At(name).buffer, type_, At(name).columns);
}

absl::Status TransformerBlock::Check(device::Lane& lane) const {
  for (const Step& step : steps_) {
    RIDGELINE_RETURN_IF_ERROR(std::visit([&](const auto& each) { return Check(each, lane); }, step));
  }
  return absl::OkStatus();
}

// A sum of k products in float32 errs by at most about k / 2 epsilons of the sum of magnitudes.
absl::Status TransformerBlock::Check(const Product& product, device::Lane& lane) const {
  RIDGELINE_ASSIGN_OR_RETURN(const HostTensor inputs, Read(lane, product.input));
  RIDGELINE_ASSIGN_OR_RETURN(const HostTensor weights, Read(lane, product.weight));
  RIDGELINE_ASSIGN_OR_RETURN(const HostTensor outputs, Read(lane, product.output));
  const std::int64_t k = At(product.weight).columns;
  for (std::int64_t column = 0; column < At(product.weight).rows; column += kColumnStep) {
    const std::vector<float> weight = weights.Row(column);
    for (const std::int64_t row : CheckedRows(tokens_)) {
      const std::vector<float> input = inputs.Row(row);
      double want = 0, magnitude = 0;
      for (std::int64_t i = 0; i < k; ++i) {
        const double term = static_cast<double>(input[i]) * weight[i];
        want += term;
        magnitude += std::abs(term);
      }
      const double tolerance = 0x1p-24 * magnitude * static_cast<double>(k + 2) + 1.01 * Roundoff(type_) * std::abs(want);
      RIDGELINE_RETURN_IF_ERROR(
          ExpectNear(absl::StrCat("a product's row ", row, ", column ", column), outputs.Row(row)[column], want, tolerance));
    }
  }
  return absl::OkStatus();
}

absl::Status TransformerBlock::Check(const Fused& fused, device::Lane& lane) const {
  FusedTensors tensors;
  for (const auto& [tensor, name] :
       {std::pair(&tensors.input, fused.input), std::pair(&tensors.other, fused.other),
        std::pair(&tensors.weight, fused.weight), std::pair(&tensors.bias, fused.bias),
        std::pair(&tensors.output, fused.output), std::pair(&tensors.residual_output, fused.residual_output)}) {
    RIDGELINE_ASSIGN_OR_RETURN(*tensor, Read(lane, name));
  }
  return CheckFused(fused.shape, mode_, tensors);
}

// Weights sum to one and values are below 6 or so, hence absolute bounds; standard attention rounds its scores too.
absl::Status TransformerBlock::Check(const Attention& attention, device::Lane& lane) const {
  RIDGELINE_ASSIGN_OR_RETURN(const HostTensor query, Read(lane, attention.query));
  RIDGELINE_ASSIGN_OR_RETURN(const HostTensor key, Read(lane, attention.key));
  RIDGELINE_ASSIGN_OR_RETURN(const HostTensor value, Read(lane, attention.value));
  RIDGELINE_ASSIGN_OR_RETURN(const HostTensor output, Read(lane, attention.output));
  const CausalAttention reference{query, key, value, geometry_.query_heads, geometry_.kv_heads, geometry_.head_dim};
  const double tolerance = type_ == DataType::kFloat32 ? 5e-5 : type_ == DataType::kFloat16 ? 8e-3 : 6e-2;
  for (const std::int64_t token : {std::int64_t{0}, tokens_ / 2, tokens_ - 1}) {
    const std::vector<float> got = output.Row(token);
    for (const std::int64_t head : {std::int64_t{0}, geometry_.query_heads - 1}) {
      const std::vector<double> want = AttentionRow(reference, token, head);
      for (std::int64_t d = 0; d < geometry_.head_dim; ++d) {
        RIDGELINE_RETURN_IF_ERROR(
            ExpectNear(absl::StrCat("the output of token ", token), got[head * geometry_.head_dim + d], want[d], tolerance));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace ridgeline::engine::benchmark
