// One block of a transformer, forward over one sequence, as a list of operations between named tensors.
//
//   input, residual ─add_norm─► sum1, normed ─► query, key, value ─rope─► ─attention─► attended ─► projected
//   projected, sum1 ─add_norm─► sum2, normed ─► (gate,) up ─activation─► activated ─► down
//
// Where a block of the Llama family has RMS norms, rotary embeddings and SwiGLU, one of GPT-2's has layer norms and a GELU with
// a bias. The last sum belongs to the next block, whose first operation it is.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "kernels/common/data_type.h"
#include "kernels/fused/fused.h"
#include "server/device/buffer.h"
#include "server/device/device.h"
#include "server/engine/benchmark/host_tensor.h"
#include "server/engine/benchmark/subject.h"

namespace ridgeline::engine::benchmark {

struct BlockGeometry {
  const char* model;
  std::int64_t width, query_heads, kv_heads, head_dim, ffn_width;
  bool is_llama;  // else as GPT-2
};

inline constexpr BlockGeometry kBlockGeometries[] = {
    {"gpt2", 768, 12, 12, 64, 3072, false},          {"gpt2_xl", 1600, 25, 25, 64, 6400, false},
    {"smollm2_135m", 576, 9, 3, 64, 1536, true},     {"llama_3_2_1b", 2048, 32, 8, 64, 8192, true},
    {"llama_3_1_8b", 4096, 32, 8, 128, 14336, true}, {"llama_3_1_70b", 8192, 64, 8, 128, 28672, true}};

// In the order in which they run.
enum class BlockOperation : std::uint8_t {
  kInputNorm,
  kQueryKeyValue,
  kRope,  // of the Llama family
  kAttention,
  kOutputProjection,
  kFfnNorm,
  kFfnUp,
  kActivation,
  kFfnDown,
};
inline constexpr std::array<const char*, 9> kBlockOperationNames = {
    "input_norm", "query_key_value", "rope", "attention", "output_projection", "ffn_norm", "ffn_up", "activation", "ffn_down"};

bool HasOperation(const BlockGeometry& geometry, BlockOperation operation);

// What an operation is made of.
enum class BlockPart : std::uint8_t { kProducts, kAttention, kSmall };
BlockPart PartOf(BlockOperation operation);

struct BlockCost {
  std::int64_t flops = 0;
  std::int64_t bytes = 0;
};

// Thread-compatible.
class TransformerBlock {
 public:
  // With `mode` kUnfused small operations are a kernel a step, and attention is standard. Only what the operations read and
  // write is allocated; what none of them writes is random. UNIMPLEMENTED, RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::shared_ptr<TransformerBlock>> Create(const PointContext& context, const BlockGeometry& geometry,
                                                                  std::int64_t tokens, kernels::DataType type,
                                                                  kernels::fused::Mode mode,
                                                                  const std::vector<BlockOperation>& operations);

  absl::Status Queue(device::Lane& lane);
  // Each operation's results against its inputs as they are, in double, at places spread over them. INTERNAL if one is wrong.
  absl::Status Check(device::Lane& lane) const;

  BlockCost cost() const { return cost_; }
  std::int64_t workspace_bytes() const { return workspace_.size_bytes(); }

 private:
  enum class TensorName : std::uint8_t {
    kNone,
    kInput,
    kResidual,
    kInputNormWeight,
    kInputNormBias,
    kInputSum,
    kInputNormed,
    kQueryWeight,
    kKeyWeight,
    kValueWeight,
    kQuery,
    kKey,
    kValue,
    kTurnedQuery,
    kTurnedKey,
    kAttended,
    kOutputWeight,
    kProjected,
    kFfnNormWeight,
    kFfnNormBias,
    kFfnSum,
    kFfnNormed,
    kGateWeight,
    kUpWeight,
    kGate,
    kUp,
    kUpBias,
    kActivated,
    kDownWeight,
    kDown,
    kCount,
  };
  struct Tensor {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    float standard_deviation = 1;  // if it is random
    device::Buffer buffer = {};
  };
  // output = input · weightᵀ
  struct Product {
    TensorName input, weight, output;
  };
  struct Fused {
    kernels::fused::FusedShape shape;
    TensorName input, other, weight, bias, output, residual_output;
  };
  struct Attention {
    TensorName query, key, value, output;
  };
  using Step = std::variant<Product, Fused, Attention>;

  TransformerBlock(const BlockGeometry& geometry, std::int64_t tokens, kernels::DataType type, kernels::fused::Mode mode);

  void AddSteps(BlockOperation operation);
  Fused Norm(TensorName input, TensorName residual, TensorName weight, TensorName bias, TensorName sum,
             TensorName output) const;
  Fused Rope(TensorName input, TensorName output) const;
  Fused Activation() const;

  absl::Status Prepare(const PointContext& context);
  absl::Status PlanAttention(const PointContext& context);
  absl::Status Provide(const PointContext& context, TensorName name, bool is_random);

  absl::Status Run(const Product& product, device::Lane& lane);
  absl::Status Run(const Fused& fused, device::Lane& lane);
  absl::Status Run(const Attention& attention, device::Lane& lane);
  absl::Status Check(const Product& product, device::Lane& lane) const;
  absl::Status Check(const Fused& fused, device::Lane& lane) const;
  absl::Status Check(const Attention& attention, device::Lane& lane) const;
  BlockCost CostOf(const Product& product) const;
  BlockCost CostOf(const Fused& fused) const;
  BlockCost CostOf(const Attention& attention) const;

  Tensor& At(TensorName name) { return tensors_[static_cast<std::size_t>(name)]; }
  const Tensor& At(TensorName name) const { return tensors_[static_cast<std::size_t>(name)]; }
  absl::StatusOr<HostTensor> Read(device::Lane& lane, TensorName name) const;

  const BlockGeometry geometry_;
  const std::int64_t tokens_;
  const kernels::DataType type_;
  const kernels::fused::Mode mode_;
  std::vector<Tensor> tensors_;  // by name
  std::vector<Step> steps_;
  BlockCost cost_;
  device::Buffer workspace_;  // of whichever step runs

  // Of attention.
  kernels::attention::AttentionShape attention_shape_ = {};
  kernels::attention::Sequence sequence_ = {};
  kernels::attention::AttentionPlan plan_ = {};
  device::Buffer sequence_table_;
};

}  // namespace ridgeline::engine::benchmark
