#include "server/engine/benchmark/mlp_stack.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/memory/memory.h"
#include "kernels/common/saturating.h"
#include "kernels/fused/fused.h"
#include "kernels/microbench/mlp_backward.h"
#include "kernels/microbench/product.h"
#include "server/base/status_macros.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using device::Lane;
using kernels::DataType;
using kernels::fused::FusedShape;
using kernels::fused::Mode;
using kernels::fused::Op;
using kernels::microbench::GeluBackwardParams;
using kernels::microbench::kLayerNormPartials;
using kernels::microbench::LayerNormBackwardParams;
using kernels::microbench::ProductParams;

constexpr double kEpsilon = 1e-5;
constexpr std::int64_t kFloatBytes = 4;

float* FloatsOf(const Buffer& buffer) { return static_cast<float*>(buffer.data()); }

FusedShape ShapeOf(Op op, std::int64_t rows, std::int64_t columns) {
  FusedShape shape;
  shape.op = op;
  shape.num_rows = rows;
  shape.row_elems = columns;
  shape.has_weight = shape.has_bias = op == Op::kLayerNorm;
  shape.epsilon = kEpsilon;
  return shape;
}

// C[m,n] = A · B, of float32.
struct Operand {
  const Buffer& matrix;
  bool transposed = false;
};

absl::Status Multiply(Lane& lane, std::int64_t m, std::int64_t n, std::int64_t k, const Operand& a, const Operand& b,
                      const Buffer& c) {
  return lane.Run(ProductParams{.type = DataType::kFloat32,
                                .transpose_a = a.transposed,
                                .transpose_b = b.transposed,
                                .m = m,
                                .n = n,
                                .k = k,
                                .a = a.matrix.data(),
                                .b = b.matrix.data(),
                                .c = c.data()});
}

// How often a pass runs a block forward.
std::int64_t ForwardRuns(const MlpStackShape& shape, const KeepPolicy& policy) {
  switch (policy.keep) {
    case Keep::kEvery:
      return 2 * shape.blocks;
    case Keep::kNone:
      return kernels::SaturatingAdd(shape.blocks, kernels::SaturatingMultiply({shape.blocks, shape.blocks + 1}) / 2);
    default:
      return shape.blocks;
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<MlpStack>> MlpStack::Create(device::Device& device, Lane& lane, const MlpStackShape& shape,
                                                           std::uint64_t seed, bool uses_host) {
  const std::shared_ptr<MlpStack> stack = absl::WrapUnique(new MlpStack(shape));
  RIDGELINE_RETURN_IF_ERROR(stack->Allocate(device, lane, seed, uses_host));
  return stack;
}

absl::Status MlpStack::Allocate(device::Device& device, Lane& lane, std::uint64_t seed, bool uses_host) {
  const auto [tokens, width, hidden, blocks] = shape_;
  const auto random = [&](std::int64_t elements, float mean, float deviation) {
    return lane.UploadRandom(DataType::kFloat32, elements, seed++, mean, deviation);
  };
  const auto share = [&](absl::StatusOr<Buffer> buffer, Tensor& tensor) -> absl::Status {
    RIDGELINE_RETURN_IF_ERROR(buffer.status());
    tensor = std::make_shared<Buffer>(*std::move(buffer));
    return absl::OkStatus();
  };
  RIDGELINE_RETURN_IF_ERROR(share(random(tokens * width, 0, 1), input_));
  RIDGELINE_RETURN_IF_ERROR(share(random(tokens * width, 0, 1), output_gradient_));
  RIDGELINE_RETURN_IF_ERROR(share(lane.Allocate(tokens * width * kFloatBytes), input_gradient_));
  RIDGELINE_ASSIGN_OR_RETURN(workspace_, lane.Allocate(2 * kLayerNormPartials * width * kFloatBytes));
  for (std::int64_t block = 0; block < blocks; ++block) {
    MlpBlock& made = parameters_.emplace_back();
    RIDGELINE_ASSIGN_OR_RETURN(made.norm_weight, random(width, 1, 0.1f));
    RIDGELINE_ASSIGN_OR_RETURN(made.norm_bias, random(width, 0, 0.1f));
    RIDGELINE_ASSIGN_OR_RETURN(made.up, random(hidden * width, 0, 1 / std::sqrt(static_cast<float>(width))));
    RIDGELINE_ASSIGN_OR_RETURN(made.down, random(width * hidden, 0, 1 / std::sqrt(static_cast<float>(hidden))));
    MlpBlock& gradient = gradients_.emplace_back();
    RIDGELINE_ASSIGN_OR_RETURN(gradient.norm_weight, lane.Allocate(width * kFloatBytes));
    RIDGELINE_ASSIGN_OR_RETURN(gradient.norm_bias, lane.Allocate(width * kFloatBytes));
    RIDGELINE_ASSIGN_OR_RETURN(gradient.up, lane.Allocate(hidden * width * kFloatBytes));
    RIDGELINE_ASSIGN_OR_RETURN(gradient.down, lane.Allocate(width * hidden * kFloatBytes));
  }
  if (!uses_host) return absl::OkStatus();
  const std::int64_t bytes = kernels::SaturatingMultiply({2 * blocks, tokens, width + hidden, kFloatBytes});
  RIDGELINE_ASSIGN_OR_RETURN(host_, device.AllocateHostMemory(device::HostMemoryKind::kPinned, bytes));
  return absl::OkStatus();
}

absl::Status MlpStack::Queue(Lane& lane, const KeepPolicy& policy) {
  std::vector<Activations> kept(shape_.blocks);
  RIDGELINE_RETURN_IF_ERROR(Forward(lane, policy, kept));
  Tensor gradient = output_gradient_;
  for (std::int64_t block = shape_.blocks; block-- > 0;) {
    RIDGELINE_ASSIGN_OR_RETURN(const Activations activations, Recall(lane, policy, block, kept));
    RIDGELINE_ASSIGN_OR_RETURN(gradient, Backward(lane, block, activations, gradient));
  }
  return absl::OkStatus();
}

// ---- Forward ----------------------------------------------------------------------------------------------------------------

absl::StatusOr<MlpStack::Tensor> MlpStack::AllocateTensor(Lane& lane, std::int64_t columns) const {
  RIDGELINE_ASSIGN_OR_RETURN(Buffer buffer, lane.Allocate(shape_.tokens * columns * kFloatBytes));
  return std::make_shared<Buffer>(std::move(buffer));
}

absl::StatusOr<MlpStack::Tensor> MlpStack::NormOf(Lane& lane, std::int64_t block, const Tensor& x) {
  RIDGELINE_ASSIGN_OR_RETURN(Tensor h, AllocateTensor(lane, shape_.width));
  const MlpBlock& parameters = parameters_[block];
  RIDGELINE_RETURN_IF_ERROR(lane.Fuse({.shape = ShapeOf(Op::kLayerNorm, shape_.tokens, shape_.width),
                                       .input = x->data(),
                                       .weight = parameters.norm_weight.data(),
                                       .bias = parameters.norm_bias.data(),
                                       .output = h->data()},
                                      Mode::kFused, nullptr));
  return h;
}

absl::StatusOr<MlpStack::Tensor> MlpStack::GeluOf(Lane& lane, const Tensor& u) {
  RIDGELINE_ASSIGN_OR_RETURN(Tensor g, AllocateTensor(lane, shape_.hidden));
  RIDGELINE_RETURN_IF_ERROR(
      lane.Fuse({.shape = ShapeOf(Op::kGelu, shape_.tokens, shape_.hidden), .input = u->data(), .output = g->data()},
                Mode::kFused, nullptr));
  return g;
}

absl::StatusOr<MlpStack::Activations> MlpStack::RunBlock(Lane& lane, std::int64_t block, Tensor x) {
  const auto [tokens, width, hidden, blocks] = shape_;
  Activations all;
  all.x = std::move(x);
  RIDGELINE_ASSIGN_OR_RETURN(all.h, NormOf(lane, block, all.x));
  RIDGELINE_ASSIGN_OR_RETURN(all.u, AllocateTensor(lane, hidden));
  RIDGELINE_RETURN_IF_ERROR(Multiply(lane, tokens, hidden, width, {*all.h}, {parameters_[block].up, true}, *all.u));
  RIDGELINE_ASSIGN_OR_RETURN(all.g, GeluOf(lane, all.u));
  RIDGELINE_ASSIGN_OR_RETURN(all.y, AllocateTensor(lane, width));
  RIDGELINE_RETURN_IF_ERROR(Multiply(lane, tokens, width, hidden, {*all.g}, {parameters_[block].down, true}, *all.y));
  return all;
}

absl::Status MlpStack::Forward(Lane& lane, const KeepPolicy& policy, std::vector<Activations>& kept) {
  Tensor x = input_;
  for (std::int64_t block = 0; block < shape_.blocks; ++block) {
    RIDGELINE_ASSIGN_OR_RETURN(Activations all, RunBlock(lane, block, std::move(x)));
    x = std::move(all.y);
    RIDGELINE_RETURN_IF_ERROR(KeepBlock(lane, policy, block, std::move(all), kept[block]));
  }
  return absl::OkStatus();
}

absl::Status MlpStack::KeepBlock(Lane& lane, const KeepPolicy& policy, std::int64_t block, Activations all, Activations& kept) {
  switch (policy.keep) {
    case Keep::kAll:
      kept = std::move(all);
      break;
    case Keep::kSelective:
      kept.x = std::move(all.x);
      kept.u = std::move(all.u);
      break;
    case Keep::kEvery:
      if (block % policy.every == 0) kept.x = std::move(all.x);
      break;
    case Keep::kNone:
      break;
    case Keep::kHost: {
      auto* to = static_cast<char*>(host_.get()) + block * 2 * shape_.tokens * (shape_.width + shape_.hidden) * kFloatBytes;
      for (const Tensor& tensor : {all.x, all.h, all.u, all.g}) {
        RIDGELINE_RETURN_IF_ERROR(lane.CopyToHost(to, *tensor, tensor->size_bytes()));
        to += tensor->size_bytes();
      }
      break;
    }
  }
  return absl::OkStatus();
}

// ---- Again ------------------------------------------------------------------------------------------------------------------

absl::StatusOr<MlpStack::Activations> MlpStack::Recall(Lane& lane, const KeepPolicy& policy, std::int64_t block,
                                                       std::vector<Activations>& kept) {
  switch (policy.keep) {
    case Keep::kNone:
      return RunFromInput(lane, block);
    case Keep::kHost:
      return FetchFromHost(lane, block);
    case Keep::kSelective: {
      Activations all = std::move(kept[block]);
      RIDGELINE_ASSIGN_OR_RETURN(all.h, NormOf(lane, block, all.x));
      RIDGELINE_ASSIGN_OR_RETURN(all.g, GeluOf(lane, all.u));
      return all;
    }
    case Keep::kEvery:
      if (kept[block].u == nullptr) {
        RIDGELINE_RETURN_IF_ERROR(RunSegment(lane, block / policy.every * policy.every, block + 1, kept));
      }
      return std::move(kept[block]);
    case Keep::kAll:
      break;
  }
  return std::move(kept[block]);
}

// Blocks [begin, end) from the first one's input, keeping all of theirs.
absl::Status MlpStack::RunSegment(Lane& lane, std::int64_t begin, std::int64_t end, std::vector<Activations>& kept) {
  Tensor x = kept[begin].x;
  for (std::int64_t block = begin; block < end; ++block) {
    RIDGELINE_ASSIGN_OR_RETURN(kept[block], RunBlock(lane, block, std::move(x)));
    x = std::move(kept[block].y);
  }
  return absl::OkStatus();
}

absl::StatusOr<MlpStack::Activations> MlpStack::RunFromInput(Lane& lane, std::int64_t block) {
  Tensor x = input_;
  for (std::int64_t before = 0; before < block; ++before) {
    RIDGELINE_ASSIGN_OR_RETURN(Activations all, RunBlock(lane, before, std::move(x)));
    x = std::move(all.y);
  }
  RIDGELINE_ASSIGN_OR_RETURN(Activations all, RunBlock(lane, block, std::move(x)));
  all.y = nullptr;
  return all;
}

absl::StatusOr<MlpStack::Activations> MlpStack::FetchFromHost(Lane& lane, std::int64_t block) {
  const char* from =
      static_cast<const char*>(host_.get()) + block * 2 * shape_.tokens * (shape_.width + shape_.hidden) * kFloatBytes;
  Activations all;
  for (const auto& [tensor, columns] : {std::pair(&all.x, shape_.width), std::pair(&all.h, shape_.width),
                                        std::pair(&all.u, shape_.hidden), std::pair(&all.g, shape_.hidden)}) {
    RIDGELINE_ASSIGN_OR_RETURN(*tensor, AllocateTensor(lane, columns));
    RIDGELINE_RETURN_IF_ERROR(lane.CopyFromHost(**tensor, from, (*tensor)->size_bytes()));
    from += (*tensor)->size_bytes();
  }
  return all;
}

// ---- Backward ---------------------------------------------------------------------------------------------------------------

absl::StatusOr<MlpStack::Tensor> MlpStack::Backward(Lane& lane, std::int64_t block, const Activations& activations,
                                                    const Tensor& dy) {
  const auto [tokens, width, hidden, blocks] = shape_;
  const MlpBlock& parameters = parameters_[block];
  const MlpBlock& gradients = gradients_[block];
  RIDGELINE_RETURN_IF_ERROR(Multiply(lane, width, hidden, tokens, {*dy, true}, {*activations.g}, gradients.down));
  // That of g, then in its place that of u.
  RIDGELINE_ASSIGN_OR_RETURN(Tensor du, AllocateTensor(lane, hidden));
  RIDGELINE_RETURN_IF_ERROR(Multiply(lane, tokens, hidden, width, {*dy}, {parameters.down}, *du));
  RIDGELINE_RETURN_IF_ERROR(lane.Run(GeluBackwardParams{.input = FloatsOf(*activations.u),
                                                        .output_gradient = FloatsOf(*du),
                                                        .input_gradient = FloatsOf(*du),
                                                        .elements = tokens * hidden}));
  RIDGELINE_RETURN_IF_ERROR(Multiply(lane, hidden, width, tokens, {*du, true}, {*activations.h}, gradients.up));
  RIDGELINE_ASSIGN_OR_RETURN(Tensor dh, AllocateTensor(lane, width));
  RIDGELINE_RETURN_IF_ERROR(Multiply(lane, tokens, width, hidden, {*du}, {parameters.up}, *dh));
  du = nullptr;
  Tensor dx = input_gradient_;
  if (block > 0) {
    RIDGELINE_ASSIGN_OR_RETURN(dx, AllocateTensor(lane, width));
  }
  RIDGELINE_RETURN_IF_ERROR(lane.Run(LayerNormBackwardParams{.input = FloatsOf(*activations.x),
                                                             .weight = FloatsOf(parameters.norm_weight),
                                                             .output_gradient = FloatsOf(*dh),
                                                             .input_gradient = FloatsOf(*dx),
                                                             .weight_gradient = FloatsOf(gradients.norm_weight),
                                                             .bias_gradient = FloatsOf(gradients.norm_bias),
                                                             .workspace = FloatsOf(workspace_),
                                                             .rows = tokens,
                                                             .columns = width,
                                                             .epsilon = static_cast<float>(kEpsilon)}));
  return dx;
}

// ---- Costs ------------------------------------------------------------------------------------------------------------------

std::int64_t CountMlpFlops(const MlpStackShape& shape, const KeepPolicy& policy) {
  const std::int64_t product = kernels::SaturatingMultiply({2, shape.tokens, shape.width, shape.hidden});
  const std::int64_t products = kernels::SaturatingAdd(kernels::SaturatingMultiply({2, ForwardRuns(shape, policy)}),
                                                       kernels::SaturatingMultiply({4, shape.blocks}));
  return kernels::SaturatingMultiply({product, products});
}

std::int64_t CountMlpBytes(const MlpStackShape& shape, const KeepPolicy& policy) {
  const std::int64_t wide = shape.tokens * shape.hidden, narrow = shape.tokens * shape.width;
  const std::int64_t weights = shape.width * shape.hidden;
  const std::int64_t norm = 2 * narrow, gelu = 2 * wide, product = wide + narrow + weights;
  const std::int64_t forward = norm + gelu + 2 * product;
  const std::int64_t backward = 4 * product + 3 * wide + 3 * narrow;
  std::int64_t elements = kernels::SaturatingMultiply({ForwardRuns(shape, policy), forward});
  elements = kernels::SaturatingAdd(elements, kernels::SaturatingMultiply({shape.blocks, backward}));
  if (policy.keep == Keep::kSelective) elements = kernels::SaturatingAdd(elements, shape.blocks * (norm + gelu));
  if (policy.keep == Keep::kHost) elements = kernels::SaturatingAdd(elements, shape.blocks * 4 * (wide + narrow));
  return kernels::SaturatingMultiply({elements, kFloatBytes});
}

}  // namespace ridgeline::engine::benchmark
