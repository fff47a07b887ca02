#include "server/engine/benchmark/transformer_block.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/memory/memory.h"
#include "kernels/attention/cost.h"
#include "kernels/fused/cost.h"
#include "kernels/microbench/product.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {

using kernels::DataType;
using kernels::fused::FusedParams;
using kernels::fused::FusedShape;
using kernels::fused::Mode;
using kernels::fused::Op;

namespace {

constexpr std::int64_t kMaxInt = std::int64_t{1} << 31;

}  // namespace

bool HasOperation(const BlockGeometry& geometry, BlockOperation operation) {
  return operation != BlockOperation::kRope || geometry.is_llama;
}

BlockPart PartOf(BlockOperation operation) {
  switch (operation) {
    case BlockOperation::kQueryKeyValue:
    case BlockOperation::kOutputProjection:
    case BlockOperation::kFfnUp:
    case BlockOperation::kFfnDown:
      return BlockPart::kProducts;
    case BlockOperation::kAttention:
      return BlockPart::kAttention;
    default:
      return BlockPart::kSmall;
  }
}

TransformerBlock::TransformerBlock(const BlockGeometry& geometry, std::int64_t tokens, DataType type, Mode mode)
    : geometry_(geometry), tokens_(tokens), type_(type), mode_(mode), tensors_(static_cast<std::size_t>(TensorName::kCount)) {
  const std::int64_t width = geometry.width, ffn = geometry.ffn_width;
  const std::int64_t query = geometry.query_heads * geometry.head_dim, kv = geometry.kv_heads * geometry.head_dim;
  const auto activations = [&](std::int64_t columns, std::initializer_list<TensorName> names) {
    for (const TensorName name : names) At(name) = {.rows = tokens, .columns = columns};
  };
  // Such that what they make is about as large as what they are given.
  const auto weights = [&](TensorName name, std::int64_t rows, std::int64_t columns) {
    At(name) = {.rows = rows, .columns = columns, .standard_deviation = 1 / std::sqrt(static_cast<float>(columns))};
  };
  activations(width, {TensorName::kInput, TensorName::kResidual, TensorName::kInputSum, TensorName::kInputNormed,
                      TensorName::kProjected, TensorName::kFfnSum, TensorName::kFfnNormed, TensorName::kDown});
  activations(query, {TensorName::kQuery, TensorName::kTurnedQuery, TensorName::kAttended});
  activations(kv, {TensorName::kKey, TensorName::kValue, TensorName::kTurnedKey});
  activations(ffn, {TensorName::kGate, TensorName::kUp, TensorName::kActivated});
  for (const TensorName name :
       {TensorName::kInputNormWeight, TensorName::kInputNormBias, TensorName::kFfnNormWeight, TensorName::kFfnNormBias}) {
    At(name) = {.rows = 1, .columns = width};
  }
  At(TensorName::kUpBias) = {.rows = 1, .columns = ffn};
  weights(TensorName::kQueryWeight, query, width);
  weights(TensorName::kKeyWeight, kv, width);
  weights(TensorName::kValueWeight, kv, width);
  weights(TensorName::kOutputWeight, width, query);
  weights(TensorName::kGateWeight, ffn, width);
  weights(TensorName::kUpWeight, ffn, width);
  weights(TensorName::kDownWeight, width, ffn);
}

absl::StatusOr<std::shared_ptr<TransformerBlock>> TransformerBlock::Create(const PointContext& context,
                                                                           const BlockGeometry& geometry, std::int64_t tokens,
                                                                           DataType type, Mode mode,
                                                                           const std::vector<BlockOperation>& operations) {
  const std::shared_ptr<TransformerBlock> block = absl::WrapUnique(new TransformerBlock(geometry, tokens, type, mode));
  for (const BlockOperation operation : operations) block->AddSteps(operation);
  RIDGELINE_RETURN_IF_ERROR(block->Prepare(context));
  return block;
}

// ---- The operations ---------------------------------------------------------------------------------------------------------

void TransformerBlock::AddSteps(BlockOperation operation) {
  using enum TensorName;
  const bool is_llama = geometry_.is_llama;
  switch (operation) {
    case BlockOperation::kInputNorm:
      steps_.emplace_back(Norm(kInput, kResidual, kInputNormWeight, kInputNormBias, kInputSum, kInputNormed));
      break;
    case BlockOperation::kQueryKeyValue:
      steps_.emplace_back(Product{kInputNormed, kQueryWeight, kQuery});
      steps_.emplace_back(Product{kInputNormed, kKeyWeight, kKey});
      steps_.emplace_back(Product{kInputNormed, kValueWeight, kValue});
      break;
    case BlockOperation::kRope:
      steps_.emplace_back(Rope(kQuery, kTurnedQuery));
      steps_.emplace_back(Rope(kKey, kTurnedKey));
      break;
    case BlockOperation::kAttention:
      steps_.emplace_back(Attention{is_llama ? kTurnedQuery : kQuery, is_llama ? kTurnedKey : kKey, kValue, kAttended});
      break;
    case BlockOperation::kOutputProjection:
      steps_.emplace_back(Product{kAttended, kOutputWeight, kProjected});
      break;
    case BlockOperation::kFfnNorm:
      steps_.emplace_back(Norm(kProjected, kInputSum, kFfnNormWeight, kFfnNormBias, kFfnSum, kFfnNormed));
      break;
    case BlockOperation::kFfnUp:
      if (is_llama) steps_.emplace_back(Product{kFfnNormed, kGateWeight, kGate});
      steps_.emplace_back(Product{kFfnNormed, kUpWeight, kUp});
      break;
    case BlockOperation::kActivation:
      steps_.emplace_back(Activation());
      break;
    case BlockOperation::kFfnDown:
      steps_.emplace_back(Product{kActivated, kDownWeight, kDown});
      break;
  }
}

TransformerBlock::Fused TransformerBlock::Norm(TensorName input, TensorName residual, TensorName weight, TensorName bias,
                                               TensorName sum, TensorName output) const {
  FusedShape shape;
  shape.op = geometry_.is_llama ? Op::kAddRmsNorm : Op::kAddLayerNorm;
  shape.data_type = type_;
  shape.num_rows = tokens_;
  shape.row_elems = geometry_.width;
  shape.has_weight = true;
  shape.has_bias = !geometry_.is_llama;
  return {shape, input, residual, weight, shape.has_bias ? bias : TensorName::kNone, output, sum};
}

TransformerBlock::Fused TransformerBlock::Rope(TensorName input, TensorName output) const {
  FusedShape shape;
  shape.op = Op::kRope;
  shape.data_type = type_;
  shape.num_rows = tokens_;
  shape.row_elems = At(input).columns;
  shape.rope.head_dim = shape.rope.rotary_dim = geometry_.head_dim;
  shape.rope.base = 500000;  // as Llama 3 has it
  return {shape, input, TensorName::kNone, TensorName::kNone, TensorName::kNone, output, TensorName::kNone};
}

TransformerBlock::Fused TransformerBlock::Activation() const {
  using enum TensorName;
  FusedShape shape;
  shape.op = geometry_.is_llama ? Op::kSwiglu : Op::kBiasGelu;
  shape.data_type = type_;
  shape.num_rows = tokens_;
  shape.row_elems = geometry_.ffn_width;
  shape.has_bias = !geometry_.is_llama;
  if (geometry_.is_llama) return {shape, kGate, kUp, kNone, kNone, kActivated, kNone};
  return {shape, kUp, kNone, kNone, kUpBias, kActivated, kNone};
}

// ---- Memory -----------------------------------------------------------------------------------------------------------------

absl::Status TransformerBlock::Provide(const PointContext& context, TensorName name, bool is_random) {
  Tensor& tensor = At(name);
  if (name == TensorName::kNone || tensor.buffer.size_bytes() > 0) return absl::OkStatus();
  if (std::max(tensor.rows, tensor.columns) >= kMaxInt) return absl::ResourceExhaustedError("no memory holds so many tokens");
  const std::int64_t elements = tensor.rows * tensor.columns;
  if (is_random) {
    RIDGELINE_ASSIGN_OR_RETURN(tensor.buffer,
                               context.lane.UploadRandom(type_, elements, context.seed + static_cast<std::uint64_t>(name), 0,
                                                         tensor.standard_deviation));
  } else {
    RIDGELINE_ASSIGN_OR_RETURN(tensor.buffer, context.lane.Allocate(elements * kernels::ElementBytes(type_)));
  }
  return absl::OkStatus();
}

absl::Status TransformerBlock::Prepare(const PointContext& context) {
  std::int64_t workspace_bytes = 0;
  for (const Step& step : steps_) {
    if (std::holds_alternative<Attention>(step)) {
      RIDGELINE_RETURN_IF_ERROR(PlanAttention(context));
      workspace_bytes = std::max(workspace_bytes, plan_.workspace_bytes);
    }
    if (const auto* const fused = std::get_if<Fused>(&step); fused != nullptr) {
      workspace_bytes = std::max(workspace_bytes, kernels::fused::WorkspaceBytes(fused->shape, mode_));
    }
    const BlockCost cost = std::visit([this](const auto& each) { return CostOf(each); }, step);
    cost_.flops += cost.flops;
    cost_.bytes += cost.bytes;
  }
  RIDGELINE_RETURN_IF_ERROR(CheckRunTime(context.device.info(), static_cast<double>(cost_.flops)));
  // The largest first: what does not fit is refused before anything is made.
  RIDGELINE_ASSIGN_OR_RETURN(workspace_, context.lane.Allocate(workspace_bytes));
  for (const Step& step : steps_) {
    std::vector<TensorName> inputs, outputs;
    if (const auto* const product = std::get_if<Product>(&step); product != nullptr) {
      inputs = {product->input, product->weight};
      outputs = {product->output};
    } else if (const auto* const fused = std::get_if<Fused>(&step); fused != nullptr) {
      inputs = {fused->input, fused->other, fused->weight, fused->bias};
      outputs = {fused->output, fused->residual_output};
    } else {
      const auto& attention = std::get<Attention>(step);
      inputs = {attention.query, attention.key, attention.value};
      outputs = {attention.output};
    }
    for (const TensorName name : inputs) RIDGELINE_RETURN_IF_ERROR(Provide(context, name, /*is_random=*/true));
    for (const TensorName name : outputs) RIDGELINE_RETURN_IF_ERROR(Provide(context, name, /*is_random=*/false));
  }
  if (attention_shape_.num_sequences == 0) return absl::OkStatus();
  const device::HostSlice table{&sequence_, sizeof(sequence_)};
  RIDGELINE_ASSIGN_OR_RETURN(sequence_table_, context.lane.Upload({&table, 1}, nullptr));
  return measure::AwaitLane(context.lane);  // the table is read from here until then
}

absl::Status TransformerBlock::PlanAttention(const PointContext& context) {
  attention_shape_ = {.data_type = type_,
                      .output_data_type = type_,
                      .num_sequences = 1,
                      .query_heads = geometry_.query_heads,
                      .kv_heads = geometry_.kv_heads,
                      .head_dim = geometry_.head_dim,
                      .value_head_dim = geometry_.head_dim,
                      .window_right = 0};
  sequence_ = {.query_begin = 0, .query_tokens = tokens_, .key_begin = 0, .key_tokens = tokens_, .lse_begin = 0};
  const auto algorithm =
      mode_ == Mode::kFused ? kernels::attention::Algorithm::kFlash : kernels::attention::Algorithm::kStandard;
  RIDGELINE_ASSIGN_OR_RETURN(plan_, context.device.PlanAttention(attention_shape_, {&sequence_, 1}, algorithm));
  return absl::OkStatus();
}

// ---- Running ----------------------------------------------------------------------------------------------------------------

absl::Status TransformerBlock::Queue(device::Lane& lane) {
  for (const Step& step : steps_) {
    RIDGELINE_RETURN_IF_ERROR(std::visit([&](const auto& each) { return Run(each, lane); }, step));
  }
  return absl::OkStatus();
}

absl::Status TransformerBlock::Run(const Product& product, device::Lane& lane) {
  const Tensor &input = At(product.input), &weight = At(product.weight), &output = At(product.output);
  return lane.Run(kernels::microbench::ProductParams{.type = type_,
                                                     .transpose_a = false,
                                                     .transpose_b = true,
                                                     .m = input.rows,
                                                     .n = weight.rows,
                                                     .k = weight.columns,
                                                     .a = input.buffer.data(),
                                                     .b = weight.buffer.data(),
                                                     .c = output.buffer.data()});
}

absl::Status TransformerBlock::Run(const Fused& fused, device::Lane& lane) {
  const FusedParams params{.shape = fused.shape,
                           .input = At(fused.input).buffer.data(),
                           .other = At(fused.other).buffer.data(),
                           .weight = At(fused.weight).buffer.data(),
                           .bias = At(fused.bias).buffer.data(),
                           .output = At(fused.output).buffer.data(),
                           .residual_output = At(fused.residual_output).buffer.data(),
                           .workspace = workspace_.data()};
  return lane.Fuse(params, mode_, nullptr);
}

absl::Status TransformerBlock::Run(const Attention& attention, device::Lane& lane) {
  const kernels::attention::AttentionParams params{
      .shape = attention_shape_,
      .scale = 1 / std::sqrt(static_cast<float>(geometry_.head_dim)),
      .sequences = static_cast<const kernels::attention::Sequence*>(sequence_table_.data()),
      .query = At(attention.query).buffer.data(),
      .key = At(attention.key).buffer.data(),
      .value = At(attention.value).buffer.data(),
      .output = At(attention.output).buffer.data(),
      .workspace = workspace_.data()};
  return lane.Attend(plan_, params, {&sequence_, 1}, nullptr).status();
}

// ---- Costs ------------------------------------------------------------------------------------------------------------------

BlockCost TransformerBlock::CostOf(const Product& product) const {
  const Tensor &input = At(product.input), &weight = At(product.weight);
  const std::int64_t m = input.rows, n = weight.rows, k = weight.columns;
  return {2 * m * n * k, (m * k + n * k + m * n) * kernels::ElementBytes(type_)};
}

BlockCost TransformerBlock::CostOf(const Fused& fused) const {
  const kernels::fused::Cost cost = kernels::fused::CountCost(fused.shape, mode_);
  return {cost.flops, cost.bytes};
}

BlockCost TransformerBlock::CostOf(const Attention& /*attention*/) const {
  const kernels::attention::Cost cost = kernels::attention::CountCost(attention_shape_, &sequence_, {}, plan_.algorithm);
  return {cost.flops, cost.bytes};
}

}  // namespace ridgeline::engine::benchmark
