// What standard attention asks of cuBLAS, answered by a stand-in that multiplies host memory: no GPU needed.
#include "kernels/attention/standard/standard_cuda_products.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/standard/standard_cuda_layout.h"
#include "kernels/common/cublas.h"
#include "kernels/common/data_type.h"

namespace ridgeline::kernels::attention {
namespace {

int num_calls = 0;

// cublasGemmStridedBatchedEx for float32, as its documentation defines it: matrices by columns, C = op(A) · B.
cublasStatus_t MultiplyOnHost(cublasHandle_t, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
                              const void* alpha, const void* a, cudaDataType a_type, int lda, long long stride_a, const void* b,
                              cudaDataType b_type, int ldb, long long stride_b, const void* beta, void* c, cudaDataType c_type,
                              int ldc, long long stride_c, int batch_count, cublasComputeType_t compute, cublasGemmAlgo_t) {
  ++num_calls;
  EXPECT_EQ(transb, CUBLAS_OP_N);
  EXPECT_EQ(compute, CUBLAS_COMPUTE_32F);
  for (const cudaDataType type : {a_type, b_type, c_type}) EXPECT_EQ(type, CUDA_R_32F);
  EXPECT_EQ(*static_cast<const float*>(alpha), 1);
  EXPECT_EQ(*static_cast<const float*>(beta), 0);
  for (int batch = 0; batch < batch_count; ++batch) {
    const float* left = static_cast<const float*>(a) + batch * stride_a;
    const float* right = static_cast<const float*>(b) + batch * stride_b;
    float* to = static_cast<float*>(c) + batch * stride_c;
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        float sum = 0;
        for (int l = 0; l < k; ++l) {
          sum += (transa == CUBLAS_OP_T ? left[l + std::int64_t{i} * lda] : left[i + std::int64_t{l} * lda]) *
                 right[l + std::int64_t{j} * ldb];
        }
        to[i + std::int64_t{j} * ldc] = sum;
      }
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

struct ProductCase {
  std::string name;
  std::int64_t num_sequences, query_tokens, key_tokens, query_heads, kv_heads;
  int num_calls;  // expected of either product
};

class StandardCudaProductsTest : public ::testing::TestWithParam<ProductCase> {
 protected:
  static constexpr std::int64_t kHeadDim = 8, kValueHeadDim = 16;
  static constexpr std::int64_t kUnusedKeys = 3;  // after each sequence

  StandardCudaProductsTest() {
    const ProductCase& p = GetParam();
    shape_ = {.data_type = DataType::kFloat32,
              .output_data_type = DataType::kFloat32,
              .num_sequences = p.num_sequences,
              .query_heads = p.query_heads,
              .kv_heads = p.kv_heads,
              .head_dim = kHeadDim,
              .value_head_dim = kValueHeadDim};
    run_ = {.first_sequence = 0,
            .count = p.num_sequences,
            .query_tokens = p.query_tokens,
            .key_tokens = p.key_tokens,
            .query_stride_tokens = p.query_tokens,
            .first_key_token = 0,
            .key_stride_tokens = p.key_tokens + kUnusedKeys,
            .first_score = 0,
            .first_product_token = 0};
    const std::int64_t query_rows = p.num_sequences * p.query_tokens * p.query_heads;
    const std::int64_t key_rows = p.num_sequences * (p.key_tokens + kUnusedKeys) * p.kv_heads;
    query_ = SmallIntegers(query_rows * kHeadDim, 3);
    key_ = SmallIntegers(key_rows * kHeadDim, 5);
    value_ = SmallIntegers(key_rows * kValueHeadDim, 7);
    scores_.assign(query_rows * ScoreRowElems(p.key_tokens), std::numeric_limits<float>::quiet_NaN());
    probabilities_ = SmallIntegers(static_cast<std::int64_t>(scores_.size()), 11);
    product_.assign(query_rows * kValueHeadDim, std::numeric_limits<float>::quiet_NaN());
    functions_.gemm_strided_batched_ex = MultiplyOnHost;
    num_calls = 0;
  }

  // Whose products and sums are exact.
  static std::vector<float> SmallIntegers(std::int64_t count, std::int64_t step) {
    std::vector<float> values(count);
    for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * step % 17 - 8);
    return values;
  }

  RunMatrices Matrices() {
    return {.query = query_.data(),
            .key = key_.data(),
            .value = value_.data(),
            .scores = scores_.data(),
            .probabilities = probabilities_.data(),
            .product = product_.data(),
            .product_stride_tokens = run_.query_tokens};
  }

  std::int64_t QueryRow(std::int64_t s, std::int64_t h, std::int64_t i) const {
    return (s * run_.query_tokens + i) * shape_.query_heads + h;
  }
  std::int64_t KeyRow(std::int64_t s, std::int64_t h, std::int64_t j) const {
    return (s * run_.key_stride_tokens + j) * shape_.kv_heads + h / shape_.GroupHeads();
  }
  std::int64_t ScoreRow(std::int64_t s, std::int64_t h, std::int64_t i) const {
    return ((s * shape_.query_heads + h) * run_.query_tokens + i) * ScoreRowElems(run_.key_tokens);
  }

  template <typename Check>
  void ForEachRow(const Check& check) const {
    for (std::int64_t s = 0; s < run_.count; ++s) {
      for (std::int64_t h = 0; h < shape_.query_heads; ++h) {
        for (std::int64_t i = 0; i < run_.query_tokens; ++i) check(s, h, i);
      }
    }
  }

  AttentionShape shape_;
  SequenceRun run_;
  std::vector<float> query_, key_, value_, scores_, probabilities_, product_;
  CublasFunctions functions_ = {};
  const Cublas cublas_ = {.functions = &functions_, .handle = nullptr};
};

INSTANTIATE_TEST_SUITE_P(Shapes, StandardCudaProductsTest,
                         ::testing::Values(ProductCase{"OneHead", 1, 5, 9, 1, 1, 1}, ProductCase{"Heads", 1, 4, 16, 3, 3, 1},
                                           ProductCase{"MoreKvHeadsThanGroupHeads", 1, 3, 7, 6, 3, 2},
                                           ProductCase{"MoreGroupHeadsThanKvHeads", 1, 3, 7, 10, 2, 2},
                                           ProductCase{"OneKvHead", 1, 3, 7, 5, 1, 1},
                                           ProductCase{"MoreSequencesThanHeads", 5, 3, 7, 4, 2, 4},
                                           ProductCase{"OneQuery", 5, 1, 7, 12, 2, 2},
                                           ProductCase{"OneQueryManyKvHeads", 1, 1, 7, 12, 4, 1}),
                         [](const auto& param) { return param.param.name; });

TEST_P(StandardCudaProductsTest, ScoresAreDotProductsAndPaddingIsLeftAlone) {
  ASSERT_EQ(MultiplyQueryKey(shape_, run_, Matrices(), cublas_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(num_calls, GetParam().num_calls);
  ForEachRow([this](std::int64_t s, std::int64_t h, std::int64_t i) {
    const float* row = scores_.data() + ScoreRow(s, h, i);
    for (std::int64_t j = 0; j < run_.key_tokens; ++j) {
      float want = 0;
      for (std::int64_t d = 0; d < kHeadDim; ++d) {
        want += query_[QueryRow(s, h, i) * kHeadDim + d] * key_[KeyRow(s, h, j) * kHeadDim + d];
      }
      ASSERT_EQ(row[j], want) << "sequence " << s << " head " << h << " query " << i << " key " << j;
    }
    for (std::int64_t j = run_.key_tokens; j < ScoreRowElems(run_.key_tokens); ++j) ASSERT_NE(row[j], row[j]);
  });
}

TEST_P(StandardCudaProductsTest, OutputsAreWeightedSums) {
  ASSERT_EQ(MultiplyProbabilityValue(shape_, run_, Matrices(), cublas_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(num_calls, GetParam().num_calls);
  ForEachRow([this](std::int64_t s, std::int64_t h, std::int64_t i) {
    for (std::int64_t d = 0; d < kValueHeadDim; ++d) {
      float want = 0;
      for (std::int64_t j = 0; j < run_.key_tokens; ++j) {
        want += probabilities_[ScoreRow(s, h, i) + j] * value_[KeyRow(s, h, j) * kValueHeadDim + d];
      }
      ASSERT_EQ(product_[QueryRow(s, h, i) * kValueHeadDim + d], want)
          << "sequence " << s << " head " << h << " query " << i << " element " << d;
    }
  });
}

TEST_P(StandardCudaProductsTest, SizesBeyondIntAreRefused) {
  run_.key_tokens = std::int64_t{1} << 31;
  EXPECT_EQ(MultiplyQueryKey(shape_, run_, Matrices(), cublas_), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(num_calls, 0);
}

}  // namespace
}  // namespace ridgeline::kernels::attention
