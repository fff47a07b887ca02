// Legend as in attention.h, G query heads a KV head. A run holds count · Hkv · G products of the same size. cuBLAS takes those
// along one axis in one call, because they must be equally far apart: the longest of the three axes is that one, and the others
// are loops of calls.
#include "kernels/attention/standard/standard_cuda_products.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/common/cuda_data_type.h"
#include "kernels/common/data_type.h"

namespace ridgeline::kernels::attention {
namespace {

// One value for each axis: sequences, KV heads, heads of a KV head's group.
using Axes = std::array<std::int64_t, 3>;

// Row-major matrices of equal size.
struct MatrixStack {
  const void* first;
  DataType type;
  std::int64_t row_stride_elems;
  Axes strides_elems;

  const void* At(const Axes& position) const {
    std::int64_t elems = 0;
    for (std::size_t axis = 0; axis < position.size(); ++axis) elems += position[axis] * strides_elems[axis];
    return static_cast<const std::byte*>(first) + elems * ElementBytes(type);
  }
};

// result[rows, columns] = left[rows, depth] · right, which is [columns, depth]ᵀ if transposed, else [depth, columns].
struct StackedProduct {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
  bool transposes_right;
  MatrixStack left;
  MatrixStack right;
  MatrixStack result;
  Axes counts;
};

bool FitsInt(std::int64_t value) { return value <= std::numeric_limits<int>::max(); }

bool IsSupported(const StackedProduct& product) {
  return FitsInt(product.rows) && FitsInt(product.columns) && FitsInt(product.depth) &&
         FitsInt(product.left.row_stride_elems) && FitsInt(product.right.row_stride_elems) &&
         FitsInt(product.result.row_stride_elems) && std::ranges::all_of(product.counts, FitsInt);
}

// The products along `axis` from `position` on. cuBLAS thinks in columns: it sees every matrix transposed, and the product's
// factors in the other order.
cublasStatus_t MultiplyAlong(std::size_t axis, const Axes& position, const StackedProduct& product, const Cublas& cublas) {
  const float one = 1;
  const float zero = 0;
  const MatrixStack& left = product.left;
  const MatrixStack& right = product.right;
  const MatrixStack& result = product.result;
  return cublas.functions->gemm_strided_batched_ex(
      cublas.handle, product.transposes_right ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, static_cast<int>(product.columns),
      static_cast<int>(product.rows), static_cast<int>(product.depth), &one, right.At(position), CudaDataType(right.type),
      static_cast<int>(right.row_stride_elems), right.strides_elems[axis], left.At(position), CudaDataType(left.type),
      static_cast<int>(left.row_stride_elems), left.strides_elems[axis], &zero, const_cast<void*>(result.At(position)),
      CudaDataType(result.type), static_cast<int>(result.row_stride_elems), result.strides_elems[axis],
      static_cast<int>(product.counts[axis]), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

cublasStatus_t Multiply(const StackedProduct& product, const Cublas& cublas) {
  if (!IsSupported(product)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const std::size_t batch_axis = std::ranges::max_element(product.counts) - product.counts.begin();
  const std::size_t outer_axis = (batch_axis + 1) % 3;
  const std::size_t inner_axis = (batch_axis + 2) % 3;
  Axes position = {};
  for (position[outer_axis] = 0; position[outer_axis] < product.counts[outer_axis]; ++position[outer_axis]) {
    for (position[inner_axis] = 0; position[inner_axis] < product.counts[inner_axis]; ++position[inner_axis]) {
      const cublasStatus_t status = MultiplyAlong(batch_axis, position, product, cublas);
      if (status != CUBLAS_STATUS_SUCCESS) return status;
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

// Heads of one token, `dim` elements each, lie one after another, those of a KV head's group together.
MatrixStack QueryHeads(const AttentionShape& shape, const void* first, DataType type, std::int64_t dim,
                       std::int64_t stride_tokens) {
  const std::int64_t token_elems = shape.query_heads * dim;
  return {first, type, token_elems, {stride_tokens * token_elems, shape.GroupHeads() * dim, dim}};
}

// The query heads of a group share their KV head.
MatrixStack KvHeads(const AttentionShape& shape, const void* first, std::int64_t dim, std::int64_t stride_tokens) {
  const std::int64_t token_elems = shape.kv_heads * dim;
  return {first, shape.data_type, token_elems, {stride_tokens * token_elems, dim, 0}};
}

MatrixStack ScoreRows(const AttentionShape& shape, const SequenceRun& run, const void* first, DataType type) {
  const std::int64_t row_elems = ScoreRowElems(run.key_tokens);
  const std::int64_t head_elems = run.query_tokens * row_elems;
  return {first, type, row_elems, {shape.query_heads * head_elems, shape.GroupHeads() * head_elems, head_elems}};
}

// With one query a sequence, the heads of a group are equally far apart in every matrix: they become the rows of one product,
// which then reads its keys or values once.
StackedProduct WithGroupAsRows(StackedProduct product, const SequenceRun& run) {
  if (run.query_tokens != 1) return product;
  product.rows = product.counts[2];
  product.counts[2] = 1;
  product.left.row_stride_elems = product.left.strides_elems[2];
  product.result.row_stride_elems = product.result.strides_elems[2];
  return product;
}

}  // namespace

cublasStatus_t MultiplyQueryKey(const AttentionShape& shape, const SequenceRun& run, const RunMatrices& matrices,
                                const Cublas& cublas) {
  const StackedProduct product = {
      .rows = run.query_tokens,
      .columns = run.key_tokens,
      .depth = shape.head_dim,
      .transposes_right = true,
      .left = QueryHeads(shape, matrices.query, shape.data_type, shape.head_dim, run.query_stride_tokens),
      .right = KvHeads(shape, matrices.key, shape.head_dim, run.key_stride_tokens),
      .result = ScoreRows(shape, run, matrices.scores, DataType::kFloat32),
      .counts = {run.count, shape.kv_heads, shape.GroupHeads()}};
  return Multiply(WithGroupAsRows(product, run), cublas);
}

cublasStatus_t MultiplyProbabilityValue(const AttentionShape& shape, const SequenceRun& run, const RunMatrices& matrices,
                                        const Cublas& cublas) {
  const StackedProduct product = {
      .rows = run.query_tokens,
      .columns = shape.value_head_dim,
      .depth = run.key_tokens,
      .transposes_right = false,
      .left = ScoreRows(shape, run, matrices.probabilities, shape.data_type),
      .right = KvHeads(shape, matrices.value, shape.value_head_dim, run.key_stride_tokens),
      .result = QueryHeads(shape, matrices.product, ProductType(shape), shape.value_head_dim, matrices.product_stride_tokens),
      .counts = {run.count, shape.kv_heads, shape.GroupHeads()}};
  return Multiply(WithGroupAsRows(product, run), cublas);
}

}  // namespace ridgeline::kernels::attention
