#include "tests/unit/engine/fuse_requests.h"

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/fused/op_info.h"
#include "tests/unit/engine/requests.h"

namespace ridgeline::engine {

using kernels::fused::FusedParams;
using kernels::fused::FusedShape;
using kernels::fused::InfoOf;
using kernels::fused::Mode;
using kernels::fused::OpInfo;
using kernels::fused::Use;

namespace {

std::vector<std::int64_t> RowsShape(const FusedShape& shape) {
  if (!InfoOf(shape.op).has_rope) return {shape.num_rows, shape.row_elems};
  return {shape.num_rows, shape.row_elems / shape.rope.head_dim, shape.rope.head_dim};
}

// Puts a result where the case expects it.
::testing::AssertionResult Take(const OutputTensor& output, const FusedShape& shape, kernels::DataType type,
                                void* expected_at) {
  if (output.data_type != type) return ::testing::AssertionFailure() << "its type is " << Name(output.data_type);
  if (output.shape != RowsShape(shape)) return ::testing::AssertionFailure() << "its shape is another";
  const std::int64_t size_bytes = shape.num_rows * shape.row_elems * kernels::ElementBytes(type);
  if (size_bytes == 0) return ::testing::AssertionSuccess();
  if (output.data == nullptr || output.data->size_bytes() != size_bytes)
    return ::testing::AssertionFailure() << "its size is another";
  std::memcpy(expected_at, output.data->data(), size_bytes);
  return ::testing::AssertionSuccess();
}

}  // namespace

FuseRequest RequestOf(support::FusedCase& fused_case, Mode mode) {
  const FusedShape& shape = fused_case.shape();
  const OpInfo& info = InfoOf(shape.op);
  const auto inline_tensor = [&](support::TestTensor& tensor, std::vector<std::int64_t> extents) {
    return InlineTensor(std::move(extents), shape.data_type, tensor.bytes());
  };
  FuseRequest request;
  request.op = shape.op;
  request.mode = mode;
  request.input = inline_tensor(fused_case.input(), RowsShape(shape));
  if (info.other != Use::kNone) request.other = inline_tensor(fused_case.other(), RowsShape(shape));
  if (info.weight != Use::kNone && shape.has_weight) request.weight = inline_tensor(fused_case.weight(), {shape.row_elems});
  if (info.bias != Use::kNone && shape.has_bias) request.bias = inline_tensor(fused_case.bias(), {shape.row_elems});
  if (shape.has_positions) {
    request.positions =
        InlineTensor({shape.num_rows}, kernels::DataType::kInt64, std::as_bytes(std::span(fused_case.positions())));
  }
  request.epsilon = shape.epsilon;
  request.gelu_form = shape.gelu_form;
  request.dropout = shape.dropout;
  request.return_mask = shape.has_mask;
  request.rope_layout = shape.rope.layout;
  request.rotary_dim = shape.rope.rotary_dim;
  request.base = shape.rope.base;
  return request;
}

::testing::AssertionResult IsRight(support::FusedCase& fused_case, Mode mode, const FuseResult& result) {
  const FusedParams& params = fused_case.params();
  const FusedShape& shape = params.shape;
  fused_case.Poison();
  struct Expected {
    kernels::DataType type;
    void* at;
  };
  std::vector<Expected> expected = {{shape.data_type, params.output}};
  if (InfoOf(shape.op).residual_output != Use::kNone) expected.push_back({shape.data_type, params.residual_output});
  if (shape.has_mask) expected.push_back({kernels::DataType::kUint8, params.mask_output});
  if (result.outputs.size() != expected.size()) {
    return ::testing::AssertionFailure() << "there are " << result.outputs.size() << " outputs";
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const ::testing::AssertionResult taken = Take(result.outputs[i], shape, expected[i].type, expected[i].at);
    if (!taken) return ::testing::AssertionFailure() << "output " << i << ": " << taken.message();
  }
  return fused_case.IsRight(mode);
}

FuseRequest SmallFuseRequest() {
  FuseRequest request;
  request.op = kernels::fused::Op::kLayerNorm;
  request.input = RandomTensor({2, 3, 16}, 1);
  request.weight = RandomTensor({16}, 2);
  request.bias = RandomTensor({16}, 3);
  return request;
}

}  // namespace ridgeline::engine
