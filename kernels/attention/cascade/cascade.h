// Attention over pages that several sequences have in common, e.g. forks of one, in two passes: what they begin with is read
// once for the queries of all.
//
//   sequences         a: P P P a a     b: P P P b     c: c c c      (pages)
//   pass 0, prefixes  queries of a and b: P P P       of c: none
//   pass 1, tails     a: a a           b: b           c: c c c
//   merge             both passes' outputs, by log-sum-exp
//
// A pass is a problem like any other, whose float32 outputs lie in the workspace. Pure host code; cascade_merge.h has the
// merge.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"

namespace ridgeline::kernels::attention {

inline constexpr int kCascadePasses = 2;

// What the passes attend to. Of sequences whose queries adjoin, neighbours that begin with the same pages share a prefix.
struct SharedPrefixes {
  std::vector<Sequence> sequences;  // prefixes, which have each query once, maybe with no keys; then a tail for each sequence
  std::int64_t num_prefixes = 0;
  std::int64_t query_tokens = 0;  // of all
  std::int64_t saved_tokens = 0;  // keys that are not read again
};

// Whether the passes together see what one would: queries must see all keys of a prefix, and logits not depend on where they
// are.
bool AllowsCascade(const AttentionShape& shape, bool has_alibi);

// A prefix sequence of more queries than this is not for the decode kernel.
inline constexpr std::int64_t kManyQueries = std::int64_t{1} << 40;

// For a shape that AllowsCascade; `block_table` is host memory. The queries of a prefix are one sequence, or are cut into
// several of at most `most_queries`, which read it again and again. Unless that is given, what takes less time; nothing if no
// prefix is shared.
SharedPrefixes FindSharedPrefixes(const AttentionShape& shape, std::span<const Sequence> sequences,
                                  std::span<const std::int32_t> block_table);
SharedPrefixes FindSharedPrefixes(const AttentionShape& shape, std::span<const Sequence> sequences,
                                  std::span<const std::int32_t> block_table, std::int64_t most_queries);

// Whether more is saved than the second pass and the merge cost.
bool CascadePays(const AttentionShape& shape, const SharedPrefixes& prefixes);

// The problem of a pass.
AttentionShape CascadePassShape(const AttentionShape& shape, const SharedPrefixes& prefixes, int pass);

struct CascadePlan {
  AttentionPlan passes[kCascadePasses];
  std::int64_t num_prefixes;
  std::int64_t query_tokens;
  std::int64_t saved_bytes;  // that the passes move less, through device memory, than CountCost has for the problem as one
};

// Of the plans of both passes.
AttentionPlan CombinePasses(const AttentionShape& shape, const SharedPrefixes& prefixes, const AttentionPlan& prefix_pass,
                            const AttentionPlan& tail_pass);

// What a pass is launched with: params.pass_sequences are the prefixes' sequences on the device.
AttentionParams CascadePassParams(const CascadePlan& plan, const AttentionParams& params, int pass);

// Where a pass leaves its float32 output, [query tokens, Hq, Dv], and log-sum-exp, [Hq, query tokens], in the workspace.
struct CascadePart {
  float* output;
  float* log_sum_exp;
};
CascadePart CascadePartOf(const CascadePlan& plan, const AttentionParams& params, int pass);

}  // namespace ridgeline::kernels::attention
