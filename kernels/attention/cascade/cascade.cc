#include "kernels/attention/cascade/cascade.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "kernels/attention/decode/decode_shape.h"
#include "kernels/attention/visible_range.h"
#include "kernels/common/rounding.h"
#include "kernels/common/saturating.h"

namespace ridgeline::kernels::attention {
namespace {

// Two more launches and the merge cost about as much as reading so many bytes. Measured: 16 µs.
constexpr std::int64_t kFewestSavedBytes = std::int64_t{128} << 20;
// As much longer do the kernels of whole prompts take for a prefix than the decode kernel.
constexpr std::int64_t kMostCutBytes = std::int64_t{192} << 20;
constexpr std::int64_t kWorkspaceAlignment = 64;

// Neighbours that begin with the same pages.
struct Group {
  std::size_t first;
  std::size_t size = 1;
  std::int64_t pages = 0;  // that they share
};

class Finder {
 public:
  Finder(const AttentionShape& shape, std::span<const Sequence> sequences, std::span<const std::int32_t> block_table)
      : shape_(shape), sequences_(sequences), block_table_(block_table) {}

  // Each sequence is in one group.
  std::vector<Group> Groups() const {
    std::vector<Group> groups;
    for (std::size_t next = 0; next < sequences_.size(); next += groups.back().size) {
      Group group = {.first = next, .pages = WholePages(sequences_[next])};
      while (MayJoin(group)) ++group.size;
      if (group.size == 1) group.pages = 0;
      groups.push_back(group);
    }
    return groups;
  }

 private:
  // Full pages before the first query.
  std::int64_t WholePages(const Sequence& sequence) const {
    if (sequence.query_tokens == 0) return 0;
    return std::max<std::int64_t>(sequence.key_tokens - sequence.query_tokens, 0) / shape_.page_tokens;
  }

  // Whether the sequence behind the group shares enough of its pages that more is saved with it than without; then the group's
  // pages are what is left.
  bool MayJoin(Group& group) const {
    const std::size_t next = group.first + group.size;
    if (next == sequences_.size()) return false;
    const Sequence &first = sequences_[group.first], &before = sequences_[next - 1], &candidate = sequences_[next];
    if (candidate.query_begin != before.query_begin + before.query_tokens) return false;
    const std::int64_t most = std::min(group.pages, WholePages(candidate));
    const auto pages = block_table_.subspan(first.key_begin, most);
    const std::int64_t common =
        std::ranges::mismatch(pages, block_table_.subspan(candidate.key_begin, most)).in1 - pages.begin();
    const auto size = static_cast<std::int64_t>(group.size);
    if (size * common <= (size - 1) * group.pages) return false;
    group.pages = common;
    return true;
  }

  const AttentionShape& shape_;
  const std::span<const Sequence> sequences_;
  const std::span<const std::int32_t> block_table_;
};

std::int64_t TokenBytes(const AttentionShape& shape) {
  return shape.kv_heads * (shape.head_dim + shape.value_head_dim) * ElementBytes(shape.data_type);
}

// The group's queries over what it shares, in one sequence or several.
void AddPrefixes(const AttentionShape& shape, std::span<const Sequence> members, const Group& group, std::int64_t most_queries,
                 SharedPrefixes& prefixes) {
  const std::int64_t tokens = group.pages * shape.page_tokens;
  Sequence prefix = {};
  prefix.key_begin = members[0].key_begin;
  prefix.key_tokens = tokens;
  const auto add = [&] {
    if (prefix.query_tokens > 0) prefixes.sequences.push_back(prefix);
  };
  for (const Sequence& member : members) {
    if (prefix.query_tokens == 0 || prefix.query_tokens + member.query_tokens > most_queries) {
      add();
      prefix.query_begin = prefix.lse_begin = member.query_begin;
      prefix.query_tokens = 0;
      prefixes.saved_tokens -= tokens;
    }
    prefix.query_tokens += member.query_tokens;
    prefixes.saved_tokens += tokens;
  }
  add();
}

Sequence TailOf(const AttentionShape& shape, Sequence sequence, std::int64_t prefix_pages) {
  sequence.key_begin += prefix_pages;
  sequence.key_tokens -= prefix_pages * shape.page_tokens;
  sequence.lse_begin = sequence.query_begin;
  return sequence;
}

SharedPrefixes MakePrefixes(const AttentionShape& shape, std::span<const Sequence> sequences, std::span<const Group> groups,
                            std::int64_t most_queries) {
  SharedPrefixes prefixes;
  for (const Group& group : groups) {
    AddPrefixes(shape, sequences.subspan(group.first, group.size), group, most_queries, prefixes);
  }
  prefixes.num_prefixes = static_cast<std::int64_t>(prefixes.sequences.size());
  for (const Group& group : groups) {
    for (const Sequence& member : sequences.subspan(group.first, group.size)) {
      prefixes.sequences.push_back(TailOf(shape, member, group.pages));
      prefixes.query_tokens = std::max(prefixes.query_tokens, member.query_begin + member.query_tokens);
    }
  }
  return prefixes;
}

std::int64_t PartFloats(const AttentionShape& shape, std::int64_t query_tokens) {
  return SaturatingMultiply({kCascadePasses, query_tokens, shape.query_heads, shape.value_head_dim + 1});
}

// Of keys and values, less what there is to move instead: the queries once more, and the parts, written and read.
std::int64_t SavedBytes(const AttentionShape& shape, const SharedPrefixes& prefixes) {
  constexpr std::int64_t kWrittenAndRead = 2 * sizeof(float);
  const std::int64_t query_bytes =
      SaturatingMultiply({prefixes.query_tokens, shape.query_heads, shape.head_dim, ElementBytes(shape.data_type)});
  const std::int64_t part_bytes = SaturatingMultiply({PartFloats(shape, prefixes.query_tokens), kWrittenAndRead});
  return SaturatingMultiply({prefixes.saved_tokens, TokenBytes(shape)}) - SaturatingAdd(query_bytes, part_bytes);
}

// Of both passes' parts, before the workspace of a pass itself.
std::int64_t PartsBytes(const AttentionShape& shape, std::int64_t query_tokens) {
  return RoundUp(PartFloats(shape, query_tokens) * static_cast<std::int64_t>(sizeof(float)), kWorkspaceAlignment);
}

}  // namespace

bool AllowsCascade(const AttentionShape& shape, bool has_alibi) {
  return shape.IsPaged() && shape.window_left >= kMaxIntTokens && !has_alibi;
}

SharedPrefixes FindSharedPrefixes(const AttentionShape& shape, std::span<const Sequence> sequences,
                                  std::span<const std::int32_t> block_table, std::int64_t most_queries) {
  return MakePrefixes(shape, sequences, Finder(shape, sequences, block_table).Groups(), most_queries);
}

SharedPrefixes FindSharedPrefixes(const AttentionShape& shape, std::span<const Sequence> sequences,
                                  std::span<const std::int32_t> block_table) {
  const std::vector<Group> groups = Finder(shape, sequences, block_table).Groups();
  if (std::ranges::all_of(groups, [](const Group& group) { return group.pages == 0; })) return {};
  SharedPrefixes cut = MakePrefixes(shape, sequences, groups, kMostDecodeRows / shape.GroupHeads());
  SharedPrefixes whole = MakePrefixes(shape, sequences, groups, kManyQueries);
  return SaturatingMultiply({whole.saved_tokens - cut.saved_tokens, TokenBytes(shape)}) <= kMostCutBytes ? cut : whole;
}

bool CascadePays(const AttentionShape& shape, const SharedPrefixes& prefixes) {
  return SaturatingMultiply({prefixes.saved_tokens, TokenBytes(shape)}) >= kFewestSavedBytes;
}

AttentionShape CascadePassShape(const AttentionShape& shape, const SharedPrefixes& prefixes, int pass) {
  AttentionShape pass_shape = shape;
  pass_shape.output_data_type = DataType::kFloat32;
  if (pass == 1) return pass_shape;
  pass_shape.num_sequences = prefixes.num_prefixes;
  pass_shape.window_right = kUnlimitedWindow;
  return pass_shape;
}

AttentionPlan CombinePasses(const AttentionShape& shape, const SharedPrefixes& prefixes, const AttentionPlan& prefix_pass,
                            const AttentionPlan& tail_pass) {
  AttentionPlan plan = {};
  plan.algorithm = tail_pass.algorithm;
  plan.kernel = "cascade_cuda[" + prefix_pass.kernel + " + " + tail_pass.kernel + "]";
  plan.reason = "sequences begin with the same pages";
  plan.query_block = tail_pass.query_block;
  plan.key_block = tail_pass.key_block;
  plan.workspace_bytes =
      SaturatingAdd(PartsBytes(shape, prefixes.query_tokens), std::max(prefix_pass.workspace_bytes, tail_pass.workspace_bytes));
  plan.merge_workspace_bytes = std::max(prefix_pass.merge_workspace_bytes, tail_pass.merge_workspace_bytes);
  plan.cascade = std::make_shared<const CascadePlan>(CascadePlan{.passes = {prefix_pass, tail_pass},
                                                                 .num_prefixes = prefixes.num_prefixes,
                                                                 .query_tokens = prefixes.query_tokens,
                                                                 .saved_bytes = SavedBytes(shape, prefixes)});
  return plan;
}

CascadePart CascadePartOf(const CascadePlan& plan, const AttentionParams& params, int pass) {
  const std::int64_t rows = plan.query_tokens * params.shape.query_heads;
  float* const outputs = static_cast<float*>(params.workspace);
  return {.output = outputs + pass * rows * params.shape.value_head_dim,
          .log_sum_exp = outputs + kCascadePasses * rows * params.shape.value_head_dim + pass * rows};
}

AttentionParams CascadePassParams(const CascadePlan& plan, const AttentionParams& params, int pass) {
  AttentionParams pass_params = params;
  pass_params.shape.output_data_type = DataType::kFloat32;
  pass_params.sequences = params.pass_sequences + (pass == 0 ? 0 : plan.num_prefixes);
  if (pass == 0) {
    pass_params.shape.num_sequences = plan.num_prefixes;
    pass_params.shape.window_right = kUnlimitedWindow;
  }
  const CascadePart part = CascadePartOf(plan, params, pass);
  pass_params.sink_logits = nullptr;
  pass_params.output = part.output;
  pass_params.log_sum_exp = part.log_sum_exp;
  pass_params.lse_head_stride_elems = plan.query_tokens;
  pass_params.workspace = static_cast<char*>(params.workspace) + PartsBytes(params.shape, plan.query_tokens);
  return pass_params;
}

}  // namespace ridgeline::kernels::attention
