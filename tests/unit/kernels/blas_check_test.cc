// OpenBLAS is right on this machine, and the check would say so if it were not: wrong products of several kinds are planted.
#include "kernels/common/blas_check.h"

#include <sys/mman.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::kernels {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

void PlainSgemm(bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a, std::int64_t lda,
                const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t column = 0; column < n; ++column) {
      float sum = 0;
      for (std::int64_t i = 0; i < k; ++i) sum += a[row * lda + i] * (transpose_b ? b[column * ldb + i] : b[i * ldb + column]);
      c[row * ldc + column] = alpha * sum;
    }
  }
}

TEST(CheckSgemmTest, AcceptsPlainLoops) { EXPECT_THAT(CheckSgemm(PlainSgemm), IsEmpty()); }

TEST(CheckSgemmTest, AcceptsOpenBlasOfThisMachine) { EXPECT_THAT(CheckSgemm(OpenBlasSgemm), IsEmpty()) << OpenBlasCore(); }

TEST(CheckSgemmTest, FindsOneElementOfOneSizeOff) {
  const std::string fault =
      CheckSgemm([](bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
                    std::int64_t lda, const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
        PlainSgemm(transpose_b, m, n, k, alpha, a, lda, b, ldb, c, ldc);
        if (m == 65) c[64 * ldc + 62] += 1e-3f;
      });
  EXPECT_THAT(fault, HasSubstr("m=65 n=63 k=129"));
  EXPECT_THAT(fault, HasSubstr("element [64,62]"));
}

TEST(CheckSgemmTest, FindsTransposedOperandReadAsPlain) {
  EXPECT_THAT(CheckSgemm([](bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
                            std::int64_t lda, const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
                // Stays inside B: the rows of either reading are shorter than ldb times the smaller dimension.
                const bool square = n == k;
                PlainSgemm(square ? false : transpose_b, m, n, k, alpha, a, lda, b, ldb, c, ldc);
              }),
              HasSubstr("B transposed"));
}

TEST(CheckSgemmTest, FindsNaN) {
  EXPECT_THAT(CheckSgemm([](bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
                            std::int64_t lda, const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
                PlainSgemm(transpose_b, m, n, k, alpha, a, lda, b, ldb, c, ldc);
                if (k == 385) c[ldc + 65] = std::numeric_limits<float>::quiet_NaN();
              }),
              HasSubstr("element [1,65] is nan"));
}

TEST(CheckSgemmTest, FindsAlphaForgotten) {
  EXPECT_THAT(CheckSgemm([](bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float, const float* a,
                            std::int64_t lda, const float* b, std::int64_t ldb, float* c,
                            std::int64_t ldc) { PlainSgemm(transpose_b, m, n, k, 1, a, lda, b, ldb, c, ldc); }),
              HasSubstr("element [0,0]"));
}

TEST(CheckSgemmTest, FindsOldContentOfCTakingPart) {
  EXPECT_THAT(CheckSgemm([](bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
                            std::int64_t lda, const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
                const float old = c[0];
                PlainSgemm(transpose_b, m, n, k, alpha, a, lda, b, ldb, c, ldc);
                c[0] += 0 * old;
              }),
              HasSubstr("nan"));
}

TEST(CheckSgemmTest, FindsWritesBetweenRows) {
  EXPECT_THAT(CheckSgemm([](bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
                            std::int64_t lda, const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
                PlainSgemm(transpose_b, m, n, k, alpha, a, lda, b, ldb, c, ldc);
                if (n == 97) c[n] = 0;
              }),
              HasSubstr("element [0,97] is 0; want inf"));
}

TEST(CheckSgemmTest, FindsRoundingOfSixteenBits) {
  EXPECT_THAT(CheckSgemm([](bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
                            std::int64_t lda, const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
                PlainSgemm(transpose_b, m, n, k, alpha, a, lda, b, ldb, c, ldc);
                for (std::int64_t i = 0; i < n; ++i) c[i] *= 1 + 0x1p-11f;
              }),
              HasSubstr("sgemm m=1 n=1 k=1"));
}

TEST(OpenBlasSgemmTest, EmptySumIsZero) {
  const float nothing = 0;
  std::vector<float> c(6, 7.0f);
  OpenBlasSgemm(/*transpose_b=*/false, 2, 2, /*k=*/0, 1, &nothing, 1, &nothing, 2, c.data(), 3);
  EXPECT_THAT(c, ::testing::ElementsAre(0, 0, 7, 0, 0, 7));
}

TEST(OpenBlasSgemmTest, ScaleZeroKeepsNaN) {
  const std::vector<float> a = {1, std::numeric_limits<float>::quiet_NaN()};
  const float b = 1;
  std::vector<float> c(2, 7.0f);
  OpenBlasSgemm(/*transpose_b=*/true, /*m=*/2, /*n=*/1, /*k=*/1, /*alpha=*/0, a.data(), 1, &b, 1, c.data(), 1);
  EXPECT_EQ(c[0], 0);
  EXPECT_TRUE(std::isnan(c[1]));
}

// Memory that is reserved but takes no room until it is written.
class SparseFloats {
 public:
  explicit SparseFloats(std::int64_t elements) : bytes_(elements * sizeof(float)) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data_ = memory == MAP_FAILED ? nullptr : static_cast<float*>(memory);
  }
  ~SparseFloats() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  SparseFloats(const SparseFloats&) = delete;
  SparseFloats& operator=(const SparseFloats&) = delete;

  float* data() const { return data_; }

 private:
  std::size_t bytes_;
  float* data_;
};

// Rows of A, B and C lie more than 2^31 elements apart, as those of S do for 2^31 keys.
TEST(OpenBlasSgemmTest, RowsFartherApartThan32BitsCount) {
  constexpr std::int64_t kStride = (std::int64_t{1} << 31) + 16;
  const SparseFloats a(kStride + 2);
  const SparseFloats b(kStride + 2);
  const SparseFloats c(kStride + 2);
  if (a.data() == nullptr || b.data() == nullptr || c.data() == nullptr) GTEST_SKIP() << "no 24 GiB of address space";
  a.data()[0] = 1, a.data()[1] = 2, a.data()[kStride] = 3, a.data()[kStride + 1] = 4;
  b.data()[0] = 5, b.data()[1] = 6, b.data()[kStride] = 7, b.data()[kStride + 1] = 8;
  OpenBlasSgemm(/*transpose_b=*/false, 2, 2, 2, 1, a.data(), kStride, b.data(), kStride, c.data(), kStride);
  EXPECT_EQ(c.data()[0], 19);
  EXPECT_EQ(c.data()[1], 22);
  EXPECT_EQ(c.data()[kStride], 43);
  EXPECT_EQ(c.data()[kStride + 1], 50);
  OpenBlasSgemm(/*transpose_b=*/true, 2, 2, 2, 1, a.data(), kStride, b.data(), kStride, c.data(), kStride);
  EXPECT_EQ(c.data()[0], 17);
  EXPECT_EQ(c.data()[1], 23);
  EXPECT_EQ(c.data()[kStride], 39);
  EXPECT_EQ(c.data()[kStride + 1], 53);
}

TEST(OpenBlasCoreTest, NamesAProcessor) { EXPECT_FALSE(OpenBlasCore().empty()); }

}  // namespace
}  // namespace ridgeline::kernels
