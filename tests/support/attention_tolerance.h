// How far a right answer may be from the reference, derived from the number formats and the inputs, element by element.
//
// Legend: u = 2^-24, the unit roundoff of float32; u_t, u_o those of the input and output types; n = keys that the row sees,
// and its sink; m = number of nonzero products in q·k; p_j = exp(logit_j - lse), exact.
//
// Any order of summation of m products errs by at most m·u times the sum of their magnitudes. So the logit of key j, computed
// in float32, is off by at most
//
//   e_scaled = (m + 2)·u·|scale|·Σ_d |q_d·k_jd|             the dot product; two roundings for the scale, split or not
//   e_capped = change of cap·tanh(x / cap) when x moves by e_scaled, as tanh is monotonic; e_scaled without a cap
//   e_logit  = e_capped + 8u·(|capped| + |alibi| + |bias|)  tanh within 2 ulp; one rounding for each product and sum
//
// and the exponential of its distance from the row's maximum by the factor exp(±e_j),
//
//   e_j = e_logit + 4u·(|logit_j| + |maximum|) + (n + 16)·u
//
// where the second part is the subtraction, with or without a product with log2(e), and the third is exp within 2 ulp, the
// rescaling by a new maximum and the sum over n terms, in any order. The row's sum is then off by exp(±E) with
// exp(E) = Σ_j p_j·exp(e_j), sink included, which bounds the log-sum-exp. A 16-bit kernel may round P: e_j + u_t. So
//
//   |output_d - want_d| <= Σ_j p_j·|v_jd|·(exp(e_j + u_t + E) - 1) + tiny·Σ_j |v_jd| + u_o·|want_d| + tiny_o
//
// where tiny and tiny_o are what P and the output lose by underflow. It can't exceed twice the largest |v_jd| either, because
// the output is an average. These bounds are rigorous, hence loose for long sums, which add up errors of both signs; therefore
// NoWorseThanPlain also compares with what a plain implementation achieves on the same inputs.
#pragma once

#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "tests/reference/attention_reference.h"
#include "tests/support/comparator.h"

namespace ridgeline::support {

// Of the same layout as the reference's result. Elements whose exact value is not finite, or that belong to no sequence: 0.
struct AttentionBound {
  std::vector<double> output;
  std::vector<double> log_sum_exp;
};

AttentionBound BoundErrors(const kernels::attention::AttentionParams& params, const reference::AttentionResult& want);

// The largest and the root-mean-square error that the whole output may have: twice those of AttendPlainly on the same inputs,
// or what rounding costs every implementation, should the plain one have been lucky.
ErrorSummary AllowedErrors(const kernels::attention::AttentionParams& params, const reference::AttentionResult& want);

// Fails if the output's errors are beyond AllowedErrors.
::testing::AssertionResult NoWorseThanPlain(std::span<const double> got, std::span<const double> want,
                                            const ErrorSummary& allowed, const Subject& subject);

}  // namespace ridgeline::support
