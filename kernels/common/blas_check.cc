#include "kernels/common/blas_check.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

namespace ridgeline::kernels {
namespace {

constexpr std::int64_t kMaxBlasInt = std::numeric_limits<blasint>::max();
constexpr std::int64_t kMaxChunk = std::int64_t{1} << 30;

// Rows that one call may span: rows farther apart than a blasint go one at a time, where the distance does not matter.
std::int64_t ChunkOfRows(std::int64_t row_stride) { return row_stride > kMaxBlasInt ? 1 : kMaxChunk; }

blasint Narrow(std::int64_t value) { return static_cast<blasint>(std::min(value, kMaxBlasInt)); }

struct ProductSize {
  std::int64_t m, n, k;
};

// Around the register tiles (4 to 48 wide) and the panels (64 to 384) of known kernels, and the thin products of attention: one
// query, one key, head dimensions of 8 and up.
constexpr ProductSize kCheckedSizes[] = {
    {1, 1, 1},    {1, 17, 8},    {1, 129, 64},  {3, 5, 7},     {7, 9, 15},    {8, 8, 8},     {15, 16, 17},   {17, 15, 16},
    {16, 33, 64}, {31, 32, 40},  {32, 31, 128}, {33, 49, 65},  {47, 48, 63},  {48, 47, 80},  {49, 65, 33},   {63, 64, 256},
    {64, 96, 64}, {65, 63, 129}, {96, 97, 72},  {50, 95, 255}, {129, 64, 65}, {34, 66, 385}, {193, 40, 127}, {24, 257, 200},
};

// The matrices of one product with gaps between their rows; the gaps of C hold a value that must survive.
class CheckedProduct {
 public:
  CheckedProduct(bool transpose_b, const ProductSize& size, std::minstd_rand& random)
      : transpose_b_(transpose_b),
        size_(size),
        lda_(size.k + 3),
        ldb_((transpose_b ? size.k : size.n) + 5),
        ldc_(size.n + 2),
        a_(Fill(size.m * lda_, random)),
        b_(Fill((transpose_b ? size.n : size.k) * ldb_, random)),
        c_(size.m * ldc_, kUnwritten) {}

  std::string Check(SgemmFunction sgemm) {
    sgemm(transpose_b_, size_.m, size_.n, size_.k, kAlpha, a_.data(), lda_, b_.data(), ldb_, c_.data(), ldc_);
    for (std::int64_t row = 0; row < size_.m; ++row) {
      for (std::int64_t column = 0; column < ldc_; ++column) {
        std::string fault = column < size_.n ? CheckElement(row, column) : CheckGap(row, column);
        if (!fault.empty()) return fault;
      }
    }
    return "";
  }

 private:
  static constexpr float kAlpha = 0.37f;
  // Not finite: it shows if C's old content takes part in the product.
  static constexpr float kUnwritten = std::numeric_limits<float>::infinity();

  // From -1 to 1. std::uniform_real_distribution takes two logarithms a number where the compiler doesn't fold them: three
  // times as long as the check itself.
  static std::vector<float> Fill(std::int64_t elements, std::minstd_rand& random) {
    constexpr float kStep = 2.0f / static_cast<float>(std::minstd_rand::max());
    std::vector<float> values(elements);
    for (float& value : values) value = kStep * static_cast<float>(random()) - 1.0f;
    return values;
  }

  std::string CheckElement(std::int64_t row, std::int64_t column) const {
    const float* b = b_.data() + (transpose_b_ ? column * ldb_ : column);
    const std::int64_t b_stride = transpose_b_ ? 1 : ldb_;
    double want = 0;
    double magnitude = 0;
    for (std::int64_t i = 0; i < size_.k; ++i) {
      const double term = double{kAlpha} * a_[row * lda_ + i] * b[i * b_stride];
      want += term;
      magnitude += std::abs(term);
    }
    // One rounding a product, one a sum, one for alpha, in any order.
    const double bound = static_cast<double>(size_.k + 2) * 0x1p-24 * magnitude;
    const float got = c_[row * ldc_ + column];
    if (std::abs(got - want) <= bound) return "";
    return Describe(row, column, got, want, bound);
  }

  std::string CheckGap(std::int64_t row, std::int64_t column) const {
    const float got = c_[row * ldc_ + column];
    if (got == kUnwritten) return "";
    return Describe(row, column, got, kUnwritten, 0);
  }

  std::string Describe(std::int64_t row, std::int64_t column, double got, double want, double bound) const {
    char text[256];
    std::snprintf(text, sizeof(text), "sgemm m=%lld n=%lld k=%lld %s: element [%lld,%lld] is %.9g; want %.9g within %.3g",
                  static_cast<long long>(size_.m), static_cast<long long>(size_.n), static_cast<long long>(size_.k),
                  transpose_b_ ? "B transposed" : "B plain", static_cast<long long>(row), static_cast<long long>(column), got,
                  want, bound);
    return text;
  }

  bool transpose_b_;
  ProductSize size_;
  std::int64_t lda_;
  std::int64_t ldb_;
  std::int64_t ldc_;
  std::vector<float> a_;
  std::vector<float> b_;
  std::vector<float> c_;
};

}  // namespace

void UseCallingThreadAloneForBlas() {
  static const bool once = [] {
    openblas_set_num_threads(1);
    return true;
  }();
  static_cast<void>(once);
}

void OpenBlasSgemm(bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
                   std::int64_t lda, const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
  UseCallingThreadAloneForBlas();
  if (alpha == 0) {  // OpenBLAS would not look at A and B, and lose their NaN
    OpenBlasSgemm(transpose_b, m, n, k, /*alpha=*/1, a, lda, b, ldb, c, ldc);
    for (std::int64_t row = 0; row < m; ++row) {
      for (std::int64_t column = 0; column < n; ++column) c[row * ldc + column] *= alpha;
    }
    return;
  }
  if (k == 0) {  // an empty sum; what OpenBLAS leaves in C then is its versions' own affair
    for (std::int64_t row = 0; row < m; ++row) std::fill_n(c + row * ldc, n, 0.0f);
    return;
  }
  const std::int64_t m_chunk = std::min(ChunkOfRows(lda), ChunkOfRows(ldc));
  const std::int64_t n_chunk = transpose_b ? ChunkOfRows(ldb) : kMaxChunk;
  const std::int64_t k_chunk = transpose_b ? kMaxChunk : ChunkOfRows(ldb);
  for (std::int64_t i = 0; i < m; i += m_chunk) {
    for (std::int64_t j = 0; j < n; j += n_chunk) {
      for (std::int64_t l = 0; l < k; l += k_chunk) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, transpose_b ? CblasTrans : CblasNoTrans, Narrow(std::min(m_chunk, m - i)),
                    Narrow(std::min(n_chunk, n - j)), Narrow(std::min(k_chunk, k - l)), alpha, a + i * lda + l, Narrow(lda),
                    b + (transpose_b ? j * ldb + l : l * ldb + j), Narrow(ldb), /*beta=*/l == 0 ? 0.0f : 1.0f, c + i * ldc + j,
                    Narrow(ldc));
      }
    }
  }
}

std::string OpenBlasCore() { return openblas_get_corename(); }

std::string CheckSgemm(SgemmFunction sgemm) {
  std::minstd_rand random(1);
  for (const ProductSize& size : kCheckedSizes) {
    for (const bool transpose_b : {true, false}) {
      std::string fault = CheckedProduct(transpose_b, size, random).Check(sgemm);
      if (!fault.empty()) return fault;
    }
  }
  return "";
}

}  // namespace ridgeline::kernels
