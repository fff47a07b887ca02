#include "server/engine/benchmark/mlp_reference.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <utility>

namespace ridgeline::engine::benchmark {
namespace {

using Matrix = std::vector<double>;

constexpr double kEpsilon = 1e-5;

struct Forward {
  Matrix x, normal, h, u, g;
  std::vector<double> factors;  // [tokens]: of the norm
};

// C[m,n] = A[m,k] · B[n,k]ᵀ
Matrix MultiplyTransposed(const Matrix& a, const Matrix& b, std::int64_t m, std::int64_t n, std::int64_t k) {
  Matrix c(m * n, 0.0);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t l = 0; l < k; ++l) c[i * n + j] += a[i * k + l] * b[j * k + l];
    }
  }
  return c;
}

Matrix Transposed(const Matrix& a, std::int64_t rows, std::int64_t columns) {
  Matrix transposed(a.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) transposed[j * rows + i] = a[i * columns + j];
  }
  return transposed;
}

double Distribution(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double Density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }

void Normalize(const MlpStackShape& shape, const MlpBlockValues& block, Forward& forward) {
  const auto [tokens, width, hidden, blocks] = shape;
  forward.normal.resize(tokens * width);
  forward.h.resize(tokens * width);
  for (std::int64_t t = 0; t < tokens; ++t) {
    double mean = 0, variance = 0;
    for (std::int64_t i = 0; i < width; ++i) mean += forward.x[t * width + i] / static_cast<double>(width);
    for (std::int64_t i = 0; i < width; ++i) {
      const double distance = forward.x[t * width + i] - mean;
      variance += distance * distance / static_cast<double>(width);
    }
    forward.factors.push_back(1 / std::sqrt(variance + kEpsilon));
    for (std::int64_t i = 0; i < width; ++i) {
      const double normal = (forward.x[t * width + i] - mean) * forward.factors.back();
      forward.normal[t * width + i] = normal;
      forward.h[t * width + i] = normal * block.norm_weight[i] + block.norm_bias[i];
    }
  }
}

Forward RunBlock(const MlpStackShape& shape, const MlpBlockValues& block, Matrix x) {
  Forward forward;
  forward.x = std::move(x);
  Normalize(shape, block, forward);
  forward.u = MultiplyTransposed(forward.h, block.up, shape.tokens, shape.hidden, shape.width);
  for (const double u : forward.u) forward.g.push_back(u * Distribution(u));
  return forward;
}

Matrix OutputOf(const MlpStackShape& shape, const MlpBlockValues& block, const Forward& forward) {
  return MultiplyTransposed(forward.g, block.down, shape.tokens, shape.width, shape.hidden);
}

// The gradient of x; adds to those of the norm's parameters.
Matrix NormBackward(const MlpStackShape& shape, const MlpBlockValues& block, const Forward& forward, const Matrix& dh,
                    MlpBlockValues& gradient) {
  const std::int64_t width = shape.width;
  Matrix dx(dh.size());
  gradient.norm_weight.assign(width, 0);
  gradient.norm_bias.assign(width, 0);
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    double mean = 0, mean_product = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      const double dy = dh[t * width + i], normal = forward.normal[t * width + i];
      gradient.norm_weight[i] += dy * normal;
      gradient.norm_bias[i] += dy;
      mean += dy * block.norm_weight[i] / static_cast<double>(width);
      mean_product += dy * block.norm_weight[i] * normal / static_cast<double>(width);
    }
    for (std::int64_t i = 0; i < width; ++i) {
      const double centred = dh[t * width + i] * block.norm_weight[i] - mean - forward.normal[t * width + i] * mean_product;
      dx[t * width + i] = forward.factors[t] * centred;
    }
  }
  return dx;
}

}  // namespace

double MlpLoss(const MlpStackShape& shape, const MlpValues& values) {
  Matrix x = values.input;
  for (const MlpBlockValues& block : values.blocks) {
    const Forward forward = RunBlock(shape, block, std::move(x));
    x = OutputOf(shape, block, forward);
  }
  double loss = 0;
  for (std::size_t i = 0; i < x.size(); ++i) loss += x[i] * values.output_gradient[i];
  return loss;
}

MlpGradients MlpLossGradients(const MlpStackShape& shape, const MlpValues& values) {
  const auto [tokens, width, hidden, blocks] = shape;
  std::vector<Forward> forwards;
  Matrix x = values.input;
  for (const MlpBlockValues& block : values.blocks) {
    forwards.push_back(RunBlock(shape, block, std::move(x)));
    x = OutputOf(shape, block, forwards.back());
  }
  MlpGradients gradients;
  gradients.blocks.resize(blocks);
  Matrix dy = values.output_gradient;
  for (std::int64_t i = blocks; i-- > 0;) {
    const MlpBlockValues& block = values.blocks[i];
    const Forward& forward = forwards[i];
    const Matrix dy_columns = Transposed(dy, tokens, width);
    gradients.blocks[i].down = MultiplyTransposed(dy_columns, Transposed(forward.g, tokens, hidden), width, hidden, tokens);
    Matrix du = MultiplyTransposed(dy, Transposed(block.down, width, hidden), tokens, hidden, width);
    for (std::size_t j = 0; j < du.size(); ++j) du[j] *= Distribution(forward.u[j]) + forward.u[j] * Density(forward.u[j]);
    gradients.blocks[i].up =
        MultiplyTransposed(Transposed(du, tokens, hidden), Transposed(forward.h, tokens, width), hidden, width, tokens);
    const Matrix dh = MultiplyTransposed(du, Transposed(block.up, hidden, width), tokens, width, hidden);
    dy = NormBackward(shape, block, forward, dh, gradients.blocks[i]);
  }
  gradients.input = std::move(dy);
  return gradients;
}

}  // namespace ridgeline::engine::benchmark
