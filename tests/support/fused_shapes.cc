#include "tests/support/fused_shapes.h"

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/fused/op_info.h"

namespace ridgeline::support {

using kernels::DataType;
using kernels::fused::FusedShape;
using kernels::fused::GeluForm;
using kernels::fused::InfoOf;
using kernels::fused::Op;
using kernels::fused::RopeLayout;
using kernels::fused::Use;

std::vector<RowsByColumns> FusedSizes() {
  std::vector<RowsByColumns> sizes = {{0, 1}, {0, 4096}, {1, 1}, {300, 1}, {65, 2}, {67, 3}};
  for (const std::int64_t columns : {7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257}) {
    sizes.push_back({5, columns});
  }
  for (const std::int64_t columns : {768, 1000, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097}) {
    sizes.push_back({3, columns});
  }
  for (const std::int64_t columns : {16383, 16384, 16385, 32761, 32768, 32769, 65535, 65536}) sizes.push_back({2, columns});
  for (const std::int64_t columns : {131073, 262137, 262143, 262144}) sizes.push_back({1, columns});
  sizes.push_back({2, 262144});
  sizes.push_back({129, 40});
  return sizes;
}

std::vector<RowsByColumns> FewFusedSizes() {
  return {{0, 8}, {9, 1}, {3, 7}, {3, 8}, {5, 9}, {37, 64}, {4, 129}, {3, 1024}, {3, 1025}, {2, 4097}, {1, 20001}};
}

FusedShape ShapeOf(Op op, DataType type, const RowsByColumns& size) {
  return {.op = op,
          .data_type = type,
          .num_rows = size.rows,
          .row_elems = size.columns,
          .has_weight = InfoOf(op).weight != Use::kNone,
          .has_bias = InfoOf(op).bias != Use::kNone,
          .has_mask = InfoOf(op).mask_output != Use::kNone,
          .dropout = {.probability = 0.3, .seed = 0x123456789abcdef0, .offset = 0xfedcba9876543210},
          .rope = {}};
}

std::vector<FusedShape> VariantsOf(const FusedShape& shape) {
  std::vector<FusedShape> variants = {shape};
  if (InfoOf(shape.op).has_gelu_form) {
    variants.push_back(shape);
    variants.back().gelu_form = GeluForm::kTanh;
  }
  // CUDA devices have kernels of their own for rows whose mask nobody wants.
  if (InfoOf(shape.op).mask_output != Use::kNone) {
    for (const GeluForm form : {GeluForm::kErf, GeluForm::kTanh}) {
      variants.push_back(shape);
      variants.back().gelu_form = form;
      variants.back().has_mask = false;
    }
  }
  if (InfoOf(shape.op).weight != Use::kNone) {
    variants.push_back(shape);
    variants.back().has_weight = variants.back().has_bias = variants.back().has_mask = false;
  }
  if (InfoOf(shape.op).weight != Use::kNone && InfoOf(shape.op).bias != Use::kNone) {
    variants.push_back(shape);
    variants.back().has_weight = false;
  }
  return variants;
}

std::vector<Op> RowOps() {
  std::vector<Op> ops;
  for (int i = 0; i < kernels::fused::kNumOps; ++i) {
    if (!InfoOf(static_cast<Op>(i)).has_rope) ops.push_back(static_cast<Op>(i));
  }
  return ops;
}

std::vector<FusedShape> RopeShapes(DataType type) {
  struct Heads {
    std::int64_t rows, heads, key_heads, head_dim, rotary_dim, value_elems;
  };
  std::vector<FusedShape> shapes;
  for (const Heads& heads : {Heads{0, 1, 1, 64, 64, 64}, Heads{7, 4, 2, 64, 64, 128}, Heads{5, 32, 8, 128, 128, 1024},
                             Heads{3, 3, 1, 80, 32, 88}, Heads{300, 1, 1, 16, 16, 16}, Heads{4, 2, 2, 24, 8, 24},
                             Heads{6, 3, 4, 6, 2, 4}, Heads{2, 1, 1, 1024, 1024, 8}, Heads{2, 2, 2, 256, 254, 512}}) {
    for (const RopeLayout layout : {RopeLayout::kHalfSplit, RopeLayout::kInterleaved}) {
      shapes.push_back({.op = Op::kRope,
                        .data_type = type,
                        .num_rows = heads.rows,
                        .row_elems = heads.heads * heads.head_dim,
                        .dropout = {},
                        .rope = {.layout = layout, .head_dim = heads.head_dim, .rotary_dim = heads.rotary_dim},
                        .key_elems = heads.key_heads * heads.head_dim,
                        .value_elems = heads.value_elems});
    }
  }
  return shapes;
}

std::string Describe(const FusedShape& shape) {
  std::string text = std::string(Name(shape.op)) + "_" + Name(shape.data_type) + "_" + std::to_string(shape.num_rows) + "x" +
                     std::to_string(shape.row_elems);
  if (shape.gelu_form == GeluForm::kTanh) text += "_tanh";
  if (shape.has_weight) text += "_weight";
  if (shape.has_bias) text += "_bias";
  if (InfoOf(shape.op).has_rope) {
    text += "_head" + std::to_string(shape.rope.head_dim) + "_rotary" + std::to_string(shape.rope.rotary_dim);
    text += shape.rope.layout == RopeLayout::kInterleaved ? "_interleaved" : "_half_split";
  }
  return text;
}

}  // namespace ridgeline::support
