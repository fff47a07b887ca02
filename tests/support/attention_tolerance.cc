#include "tests/support/attention_tolerance.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/common/data_type.h"
#include "tests/reference/attention_reference.h"
#include "tests/reference/plain_attention.h"
#include "tests/support/comparator.h"

namespace ridgeline::support {
namespace {

using kernels::DataType;
using kernels::attention::AttentionParams;
using kernels::attention::AttentionShape;
using kernels::attention::Sequence;
using reference::Load;
using reference::VisibleKey;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kFloat32Roundoff = 0x1p-24;

// Largest relative error of one rounding.
double UnitRoundoff(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return 0x1p-11;
    case DataType::kBFloat16:
      return 0x1p-8;
    default:
      return kFloat32Roundoff;
  }
}

// Largest absolute error of rounding a value below the normal range: half the spacing there for float16, whose subnormals are
// computed with; the smallest normal number for the others, whose subnormals a processor may flush to zero.
double UnderflowError(DataType type) { return type == DataType::kFloat16 ? 0x1p-25 : 0x1p-126; }

// One row: the keys that a query sees, with what can go wrong in each.
class RowBound {
 public:
  RowBound(const AttentionParams& params, std::int64_t sequence_idx, std::int64_t head_idx, std::int64_t query_idx)
      : params_(params),
        sequence_(params.sequences[sequence_idx]),
        head_idx_(head_idx),
        query_idx_(query_idx),
        keys_(reference::VisibleKeys(params, sequence_idx, head_idx, query_idx)),
        sink_(params.sink_logits != nullptr ? params.sink_logits[head_idx] : -kInfinity) {
    largest_ = sink_;
    for (const VisibleKey& key : keys_) largest_ = std::max(largest_, key.logit);
    FindExponentErrors();
  }

  // False if the row sees nothing: its answer is exact.
  bool SeesAnything() const { return largest_ != -kInfinity; }

  double LogSumExp() const { return sum_error_ + 4 * kFloat32Roundoff * (2 * std::abs(largest_) + std::log(sum_) + 1); }

  // What rounding costs nearly every implementation, for each element of the row's output, [Dv]: one rounding of the output,
  // one of each product at the size of its terms, each logit, and each exponential within 2 ulp.
  std::vector<double> UnavoidableOutput(std::span<const double> want) const {
    const AttentionShape& shape = params_.shape;
    std::vector<double> error(want.size());
    for (std::size_t k = 0; k < keys_.size(); ++k) {
      const double weight = Weight(keys_[k].logit) * unavoidable_errors_[k];
      for (std::size_t d = 0; d < want.size(); ++d) {
        error[d] += weight * std::abs(Load(shape.data_type, params_.value, KeyRow(keys_[k]) * shape.value_head_dim + d));
      }
    }
    for (std::size_t d = 0; d < want.size(); ++d) {
      error[d] += UnitRoundoff(shape.output_data_type) * std::abs(want[d]) + UnderflowError(shape.output_data_type);
      if (!std::isfinite(want[d])) error[d] = 0;
    }
    return error;
  }

  // For each element of the row's output, [Dv].
  std::vector<double> Output(std::span<const double> want) const {
    const AttentionShape& shape = params_.shape;
    const double p_roundoff = shape.data_type == DataType::kFloat32 ? 0 : UnitRoundoff(shape.data_type);
    std::vector<double> bound(want.size());
    std::vector<double> largest_value(want.size());
    for (std::size_t k = 0; k < keys_.size(); ++k) {
      const double p = Weight(keys_[k].logit);
      const double relative = std::expm1(errors_[k] + p_roundoff + sum_error_);
      const double weight = (p == 0 ? 0 : p * relative) + UnderflowError(shape.data_type);
      for (std::size_t d = 0; d < want.size(); ++d) {
        const double magnitude = std::abs(Load(shape.data_type, params_.value, KeyRow(keys_[k]) * shape.value_head_dim + d));
        bound[d] += weight * magnitude;
        largest_value[d] = std::max(largest_value[d], magnitude);
      }
    }
    for (std::size_t d = 0; d < want.size(); ++d) {
      bound[d] = std::min(bound[d], 2 * largest_value[d]);
      bound[d] +=
          UnitRoundoff(shape.output_data_type) * (std::abs(want[d]) + bound[d]) + UnderflowError(shape.output_data_type);
      if (!std::isfinite(want[d])) bound[d] = 0;
    }
    return bound;
  }

 private:
  double Weight(double logit) const { return std::exp(logit - largest_) / sum_; }

  std::int64_t KeyRow(const VisibleKey& key) const {
    return (sequence_.key_begin + key.key_idx) * params_.shape.kv_heads + head_idx_ / params_.shape.GroupHeads();
  }

  void FindExponentErrors() {
    if (!SeesAnything()) return;
    sum_ = std::exp(sink_ - largest_);
    for (const VisibleKey& key : keys_) sum_ += std::exp(key.logit - largest_);
    const double sum_roundoff = (static_cast<double>(keys_.size()) + 17) * kFloat32Roundoff;
    double excess = 0;  // exp(E) - 1
    const auto error_of = [&](double logit, double logit_error) {
      const double error = logit_error + 4 * kFloat32Roundoff * (std::abs(logit) + std::abs(largest_)) + sum_roundoff;
      const double p = Weight(logit);
      if (p > 0) excess += p * std::expm1(error);
      return error;
    };
    for (const VisibleKey& key : keys_) {
      const Product product = Multiply(key);
      errors_.push_back(error_of(key.logit, LogitError(key, product, product.num_terms + 2)));
      unavoidable_errors_.push_back(LogitError(key, product, 1) + 4 * kFloat32Roundoff);
    }
    if (sink_ != -kInfinity) error_of(sink_, 0);
    sum_error_ = std::log1p(excess);
  }

  // q·k of one key.
  struct Product {
    double value = 0;
    double magnitude = 0;  // sum of the magnitudes of its terms
    double num_terms = 0;  // that are not zero
  };

  Product Multiply(const VisibleKey& key) const {
    const AttentionShape& shape = params_.shape;
    const std::int64_t query_row = (sequence_.query_begin + query_idx_) * shape.query_heads + head_idx_;
    Product product;
    for (std::int64_t d = 0; d < shape.head_dim; ++d) {
      const double term = Load(shape.data_type, params_.query, query_row * shape.head_dim + d) *
                          Load(shape.data_type, params_.key, KeyRow(key) * shape.head_dim + d);
      product.value += term;
      product.magnitude += std::abs(term);
      if (term != 0) ++product.num_terms;
    }
    return product;
  }

  // e_logit, if the scaled product suffers so many roundings at the size of its terms.
  double LogitError(const VisibleKey& key, const Product& product, double num_roundings) const {
    double error = num_roundings * kFloat32Roundoff * std::abs(params_.scale) * product.magnitude;
    double capped = params_.scale * product.value;
    if (const double cap = params_.logit_soft_cap; cap > 0) {
      const double scaled = capped;
      capped = cap * std::tanh(scaled / cap);
      error = std::max(cap * std::tanh((scaled + error) / cap) - capped, capped - cap * std::tanh((scaled - error) / cap));
    }
    const double position = static_cast<double>(query_idx_ + sequence_.key_tokens - sequence_.query_tokens - key.key_idx);
    const double alibi = params_.alibi_slopes != nullptr ? params_.alibi_slopes[head_idx_] * std::abs(position) : 0;
    const double bias = key.logit - (capped - alibi);
    return error + 8 * kFloat32Roundoff * (std::abs(capped) + std::abs(alibi) + std::abs(bias));
  }

  const AttentionParams& params_;
  const Sequence& sequence_;
  const std::int64_t head_idx_;
  const std::int64_t query_idx_;
  const std::vector<VisibleKey> keys_;
  const double sink_;
  double largest_ = -kInfinity;             // logit
  double sum_ = 0;                          // of exp(logit - largest_), sink included
  std::vector<double> errors_;              // e_j of each key
  std::vector<double> unavoidable_errors_;  // of each key's exponential, see UnavoidableOutput
  double sum_error_ = 0;                    // E
};

std::vector<double> Widen(DataType type, const void* data, std::size_t elements) {
  std::vector<double> wide(elements);
  for (std::size_t i = 0; i < elements; ++i) wide[i] = Load(type, data, static_cast<std::int64_t>(i));
  return wide;
}

std::span<const double> OutputRow(const AttentionParams& params, const reference::AttentionResult& want,
                                  std::int64_t output_idx) {
  return std::span(want.output).subspan(output_idx, params.shape.value_head_dim);
}

// Calls visit(row, first element of the row's output, element of its log-sum-exp) for each row that sees anything.
template <typename Visit>
void ForEachRow(const AttentionParams& params, const Visit& visit) {
  const AttentionShape& shape = params.shape;
  for (std::int64_t s = 0; s < shape.num_sequences; ++s) {
    const Sequence& sequence = params.sequences[s];
    for (std::int64_t h = 0; h < shape.query_heads; ++h) {
      for (std::int64_t i = 0; i < sequence.query_tokens; ++i) {
        const RowBound row(params, s, h, i);
        if (!row.SeesAnything()) continue;
        visit(row, ((sequence.query_begin + i) * shape.query_heads + h) * shape.value_head_dim,
              sequence.lse_begin + h * params.lse_head_stride_elems + i);
      }
    }
  }
}

ErrorSummary UnavoidableErrors(const AttentionParams& params, const reference::AttentionResult& want) {
  std::vector<double> errors(want.output.size());
  ForEachRow(params, [&](const RowBound& row, std::int64_t output_idx, std::int64_t) {
    std::ranges::copy(row.UnavoidableOutput(OutputRow(params, want, output_idx)), errors.begin() + output_idx);
  });
  return SummarizeErrors(errors, std::vector<double>(errors.size()));
}

}  // namespace

AttentionBound BoundErrors(const AttentionParams& params, const reference::AttentionResult& want) {
  AttentionBound bound{std::vector<double>(want.output.size()), std::vector<double>(want.log_sum_exp.size())};
  ForEachRow(params, [&](const RowBound& row, std::int64_t output_idx, std::int64_t lse_idx) {
    std::ranges::copy(row.Output(OutputRow(params, want, output_idx)), bound.output.begin() + output_idx);
    if (params.log_sum_exp == nullptr || !std::isfinite(want.log_sum_exp[lse_idx])) return;
    bound.log_sum_exp[lse_idx] = row.LogSumExp();
  });
  return bound;
}

ErrorSummary AllowedErrors(const AttentionParams& params, const reference::AttentionResult& want) {
  const reference::PlainAttentionResult plain = reference::AttendPlainly(params);
  const std::vector<double> plain_output = Widen(params.shape.output_data_type, plain.output.data(), want.output.size());
  const ErrorSummary plain_errors = SummarizeErrors(plain_output, want.output);
  const ErrorSummary unavoidable = UnavoidableErrors(params, want);
  return {.largest = std::max(2 * plain_errors.largest, unavoidable.largest),
          .root_mean_square = std::max(2 * plain_errors.root_mean_square, unavoidable.root_mean_square)};
}

::testing::AssertionResult NoWorseThanPlain(std::span<const double> got, std::span<const double> want,
                                            const ErrorSummary& allowed, const Subject& subject) {
  const ErrorSummary errors = SummarizeErrors(got, want);
  if (errors.largest <= allowed.largest && errors.root_mean_square <= allowed.root_mean_square) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << subject.name << ": error is more than twice a plain implementation's: largest "
                                       << errors.largest << ", allowed " << allowed.largest << "; root mean square "
                                       << errors.root_mean_square << ", allowed " << allowed.root_mean_square << "; seed "
                                       << subject.seed;
}

}  // namespace ridgeline::support
