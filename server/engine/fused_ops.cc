#include "server/engine/fused_ops.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/fused/cost.h"
#include "kernels/fused/op_info.h"
#include "server/engine/kv_cache/geometry.h"

namespace ridgeline::engine {
namespace {

using kernels::fused::FusedShape;
using kernels::fused::InfoOf;
using kernels::fused::Op;
using kernels::fused::OpInfo;
using kernels::fused::Use;

const char* FormulaOf(Op op) {
  switch (op) {
    case Op::kLayerNorm:
      return "output = (input - mean) / sqrt(variance + epsilon) * weight + bias";
    case Op::kRmsNorm:
      return "output = input / sqrt(mean(input^2) + epsilon) * weight";
    case Op::kSoftmax:
      return "output = exp(input - max) / sum(exp(input - max))";
    case Op::kGelu:
      return "output = gelu(input)";
    case Op::kBiasGelu:
      return "output = gelu(input + bias)";
    case Op::kGeluAdd:
      return "output = gelu(input) + residual";
    case Op::kAddLayerNorm:
      return "sum = input + residual; output = (sum - mean) / sqrt(variance + epsilon) * weight + bias";
    case Op::kAddRmsNorm:
      return "sum = input + residual; output = sum / sqrt(mean(sum^2) + epsilon) * weight";
    case Op::kLayerNormGeluDropout:
      return "output = dropout(gelu((input - mean) / sqrt(variance + epsilon) * weight + bias))";
    case Op::kSwiglu:
      return "output = gate / (1 + exp(-gate)) * up";
    case Op::kRope:
      return "output = input, each pair p of a head turned by position * base^(-2p / rotary_dim)";
    case Op::kRopeAppend:
      return "output = query, keys to the cache = new_key, each pair p of a head turned by position * base^(-2p / rotary_dim); "
             "values to the cache = new_value";
  }
  return "";
}

const char* RowsShape(const OpInfo& info) { return info.has_rope ? "[..., heads, head_dim]" : "[..., N]"; }

std::vector<FusedOpTensor> InputsOf(const OpInfo& info) {
  std::vector<FusedOpTensor> inputs;
  const auto add = [&inputs](Use use, const char* name, const char* shape) {
    if (use != Use::kNone) inputs.push_back({.name = name, .shape = shape, .optional = use == Use::kOptional});
  };
  const char* rows = info.appends ? "[batch, tokens, query_heads, head_dim]" : RowsShape(info);
  add(info.input, InputName(info.op), rows);
  add(info.other, info.other_name, rows);
  add(info.weight, "weight", "[N]");
  add(info.bias, "bias", "[N]");
  if (info.appends) {
    add(Use::kRequired, "new_key", "[batch, tokens, kv_heads, head_dim]");
    add(Use::kRequired, "new_value", "[batch, tokens, kv_heads, value_head_dim]");
  }
  if (info.positions != Use::kNone) {
    add(info.positions, "positions", info.appends ? "[batch, tokens]" : "[...]");
    inputs.back().data_type = kernels::DataType::kInt64;
  }
  return inputs;
}

std::vector<FusedOpTensor> OutputsOf(const OpInfo& info) {
  const char* rows = info.appends ? "[batch, tokens, query_heads, head_dim]" : RowsShape(info);
  std::vector<FusedOpTensor> outputs = {{.name = "output", .shape = rows, .optional = info.input == Use::kOptional}};
  if (info.residual_output != Use::kNone) outputs.push_back({.name = "sum", .shape = rows});
  if (info.mask_output != Use::kNone) {
    outputs.push_back({.name = "mask", .shape = rows, .optional = true, .data_type = kernels::DataType::kUint8});
  }
  return outputs;
}

std::vector<FusedOpOption> OptionsOf(const OpInfo& info) {
  std::vector<FusedOpOption> options;
  if (info.has_epsilon) options.push_back({"epsilon", "finite, at least 0", "1e-5"});
  if (info.has_gelu_form) options.push_back({"form", "erf, tanh", "erf"});
  if (info.has_dropout) {
    options.push_back({"probability", "0 to 1, in steps of 2^-16", "0"});
    options.push_back({"seed", "any", "0"});
    options.push_back({"offset", "any", "0"});
    options.push_back({"return_mask", "true, false", "false"});
  }
  if (info.has_rope) {
    options.push_back({"layout", "half split, interleaved", "half split"});
    options.push_back({"rotary_dim", "even, 2 to head_dim", "head_dim"});
    options.push_back({"base", "positive, finite", "10000"});
  }
  return options;
}

// With every optional tensor.
FusedShape LargestChain(const OpInfo& info) {
  return {.op = info.op,
          .num_rows = 1,
          .row_elems = 8,
          .has_weight = info.weight != Use::kNone,
          .has_bias = info.bias != Use::kNone,
          .has_mask = info.mask_output != Use::kNone,
          .has_positions = info.positions != Use::kNone,
          .dropout = {},
          .rope = {.head_dim = 8, .rotary_dim = 8},
          .key_elems = 8,
          .value_elems = 8};
}

FusedOpDescription Describe(Op op) {
  const OpInfo& info = InfoOf(op);
  return {.op = op,
          .name = info.name,
          .formula = FormulaOf(op),
          .inputs = InputsOf(info),
          .outputs = OutputsOf(info),
          .options = OptionsOf(info),
          .max_head_dim = info.has_rope ? (info.appends ? kv_cache::kMaxHeadDim : kernels::fused::kMaxHeadDim) : 0,
          .unfused_kernel_count = kernels::fused::CountCost(LargestChain(info), kernels::fused::Mode::kUnfused).num_kernels};
}

}  // namespace

absl::Span<const FusedOpDescription> FusedOps() {
  static const auto* const kOps = [] {
    auto* ops = new std::vector<FusedOpDescription>;
    for (int op = 0; op < kernels::fused::kNumOps; ++op) ops->push_back(Describe(static_cast<Op>(op)));
    return ops;
  }();
  return *kOps;
}

const char* InputName(Op op) {
  switch (op) {
    case Op::kSwiglu:
      return "gate";
    case Op::kRopeAppend:
      return "query";
    default:
      return "input";
  }
}

}  // namespace ridgeline::engine
