#include "kernels/fused/op_info.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

#include "kernels/common/saturating.h"

namespace ridgeline::kernels::fused {
namespace {

constexpr std::array<OpInfo, kNumOps> kOps = {{
    {.op = Op::kLayerNorm,
     .name = "layer_norm",
     .weight = Use::kOptional,
     .bias = Use::kOptional,
     .has_epsilon = true,
     .reduces_rows = true},
    {.op = Op::kRmsNorm, .name = "rms_norm", .weight = Use::kOptional, .has_epsilon = true, .reduces_rows = true},
    {.op = Op::kSoftmax, .name = "softmax", .reduces_rows = true},
    {.op = Op::kGelu, .name = "gelu", .has_gelu_form = true},
    {.op = Op::kBiasGelu, .name = "bias_gelu", .bias = Use::kRequired, .has_gelu_form = true},
    {.op = Op::kGeluAdd, .name = "gelu_add", .other = Use::kRequired, .other_name = "residual", .has_gelu_form = true},
    {.op = Op::kAddLayerNorm,
     .name = "add_layer_norm",
     .other = Use::kRequired,
     .other_name = "residual",
     .weight = Use::kOptional,
     .bias = Use::kOptional,
     .residual_output = Use::kRequired,
     .has_epsilon = true,
     .reduces_rows = true},
    {.op = Op::kAddRmsNorm,
     .name = "add_rms_norm",
     .other = Use::kRequired,
     .other_name = "residual",
     .weight = Use::kOptional,
     .residual_output = Use::kRequired,
     .has_epsilon = true,
     .reduces_rows = true},
    {.op = Op::kLayerNormGeluDropout,
     .name = "layer_norm_gelu_dropout",
     .weight = Use::kOptional,
     .bias = Use::kOptional,
     .mask_output = Use::kOptional,
     .has_epsilon = true,
     .has_gelu_form = true,
     .has_dropout = true,
     .reduces_rows = true},
    {.op = Op::kSwiglu, .name = "swiglu", .other = Use::kRequired, .other_name = "up"},
    {.op = Op::kRope, .name = "rope", .positions = Use::kOptional, .has_rope = true},
    {.op = Op::kRopeAppend,
     .name = "rope_append",
     .input = Use::kOptional,
     .positions = Use::kOptional,
     .has_rope = true,
     .appends = true},
}};

std::string Text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

std::string Outside(const char* member, const std::string& value, const std::string& allowed) {
  return std::string(member) + " is " + value + "; " + allowed;
}

std::string WhyNotRope(const FusedShape& shape) {
  const RopeOptions& rope = shape.rope;
  if (rope.head_dim < 2 || rope.head_dim > kMaxHeadDim) {
    return Outside("head_dim", std::to_string(rope.head_dim), "rotary embedding supports 2 to " + std::to_string(kMaxHeadDim));
  }
  if (rope.rotary_dim < 2 || rope.rotary_dim > rope.head_dim || rope.rotary_dim % 2 != 0) {
    return Outside("rotary_dim", std::to_string(rope.rotary_dim),
                   "it is even and from 2 to head_dim, " + std::to_string(rope.head_dim));
  }
  if (!(rope.base > 0 && std::isfinite(rope.base))) return Outside("base", Text(rope.base), "it is positive and finite");
  if (shape.has_input && shape.row_elems % rope.head_dim != 0) {
    return Outside("row_elems", std::to_string(shape.row_elems), "a row has whole heads of " + std::to_string(rope.head_dim));
  }
  if (!InfoOf(shape.op).appends) return "";
  if (shape.key_elems < 1 || shape.key_elems > kMaxRowElems || shape.key_elems % rope.head_dim != 0) {
    return Outside("key_elems", std::to_string(shape.key_elems),
                   "a token has whole key heads of " + std::to_string(rope.head_dim) + ", and up to " +
                       std::to_string(kMaxRowElems) + " elements");
  }
  if (shape.value_elems < 1 || shape.value_elems > kMaxRowElems) {
    return Outside("value_elems", std::to_string(shape.value_elems), "it is from 1 to " + std::to_string(kMaxRowElems));
  }
  for (const std::int64_t elems : {shape.key_elems, shape.value_elems}) {
    constexpr std::int64_t kPageRowBytes = 8;  // kv_cache.h
    if (elems * ElementBytes(shape.data_type) % kPageRowBytes != 0) {
      return Outside("the size of a token in pages", std::to_string(elems * ElementBytes(shape.data_type)) + " bytes",
                     "it is a multiple of 8");
    }
  }
  return "";
}

}  // namespace

const OpInfo& InfoOf(Op op) { return kOps[static_cast<std::size_t>(op)]; }

std::string WhyNot(const FusedShape& shape) {
  const OpInfo& info = InfoOf(shape.op);
  if (shape.data_type != DataType::kFloat32 && shape.data_type != DataType::kFloat16 &&
      shape.data_type != DataType::kBFloat16) {
    return Outside("data_type", Name(shape.data_type), "fused operations support float32, float16 and bfloat16");
  }
  if (shape.num_rows < 0) return Outside("num_rows", std::to_string(shape.num_rows), "it is not negative");
  if (shape.has_input && (shape.row_elems < 1 || shape.row_elems > kMaxRowElems)) {
    return Outside("row_elems", std::to_string(shape.row_elems),
                   "fused operations support 1 to " + std::to_string(kMaxRowElems));
  }
  const std::int64_t largest_row = std::max({shape.has_input ? shape.row_elems : 1, shape.key_elems, shape.value_elems});
  if (SaturatingMultiply({shape.num_rows, largest_row, 8}) == std::numeric_limits<std::int64_t>::max()) {
    return Outside("num_rows", std::to_string(shape.num_rows), "no memory holds so many rows");
  }
  if (info.has_epsilon && !(shape.epsilon >= 0 && std::isfinite(shape.epsilon))) {
    return Outside("epsilon", Text(shape.epsilon), "it is finite and not negative");
  }
  if (info.has_dropout && !(shape.dropout.probability >= 0 && shape.dropout.probability <= 1)) {
    return Outside("probability", Text(shape.dropout.probability), "it is from 0 to 1");
  }
  return info.has_rope ? WhyNotRope(shape) : "";
}

}  // namespace ridgeline::kernels::fused
