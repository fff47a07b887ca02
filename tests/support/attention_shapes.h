// The shapes and options on which attention is tested: one table for kernels on every device, for calls through the socket and
// for benches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/data_type.h"

namespace ridgeline::support {

// A batch of sequences, dense or ragged, over keys and values in rows or in pages. B is query_tokens.size().
struct AttentionProblem {
  std::string name;
  std::int64_t query_heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 64;
  std::int64_t value_head_dim = 64;
  std::vector<std::int64_t> query_tokens;  // [B]; all equal in a dense batch
  std::vector<std::int64_t> key_tokens;    // [B]; valid ones
  // Of a dense batch: keys stored for each sequence, at least its valid ones. Unset: ragged.
  std::optional<std::int64_t> dense_key_tokens;

  std::int64_t page_tokens = 0;  // of a page; 0: not in pages
  std::int64_t shared_prefix_pages =
      0;  // with which every sequence begins, as far as they are full in it: forks of one another

  bool ragged() const { return !dense_key_tokens.has_value(); }
  bool paged() const { return page_tokens > 0; }
  // Tokens that a sequence other than the first has in pages of the first.
  std::int64_t SharedTokens(std::size_t sequence_idx) const;
};

enum class Sink { kNone, kFinite, kSomeMinusInfinity };
enum class Bias { kNone, kFull, kSharedByBatch, kSharedByHeads, kSharedByAll, kSomeMinusInfinity };

// Named after AttentionOptions of the contract.
struct AttentionOptions {
  std::string name = "no_option";
  std::optional<double> scale;  // unset: 1 / sqrt(head_dim)
  bool causal = false;
  std::optional<std::int64_t> window_left;
  std::optional<std::int64_t> window_right;
  double logit_soft_cap = 0;
  bool alibi = false;
  Sink sink = Sink::kNone;
  Bias bias = Bias::kNone;  // dense batches only
  bool log_sum_exp = true;
  std::optional<kernels::DataType> output_data_type;  // unset: as the inputs
};

// A causal mask and nothing else.
AttentionOptions Causal();

// One value of one option. Values of the same option exclude each other.
struct OptionVariant {
  std::string name;
  std::string option;
  void (*apply)(AttentionOptions&);
};

inline constexpr kernels::DataType kAttentionTypes[] = {kernels::DataType::kFloat32, kernels::DataType::kFloat16,
                                                        kernels::DataType::kBFloat16};

// The least and the largest page of a cache, powers of two and none.
inline constexpr std::int64_t kPageTokens[] = {1, 3, 7, 16, 64, 100, 256};

AttentionProblem DenseProblem(std::int64_t batch, std::int64_t query_tokens, std::int64_t key_tokens, std::int64_t query_heads,
                              std::int64_t kv_heads, std::int64_t head_dim, std::int64_t value_head_dim);
// A dense batch of which only `lengths` keys of each sequence are valid.
AttentionProblem PaddedProblem(std::int64_t query_tokens, std::int64_t key_tokens, std::vector<std::int64_t> lengths,
                               std::int64_t query_heads, std::int64_t kv_heads, std::int64_t head_dim);
AttentionProblem RaggedProblem(std::vector<std::int64_t> query_tokens, std::vector<std::int64_t> key_tokens,
                               std::int64_t query_heads, std::int64_t kv_heads, std::int64_t head_dim);

// The problem with its keys and values in pages.
AttentionProblem Paged(AttentionProblem problem, std::int64_t page_tokens);
// The problem, which is paged, with sequences that begin with the same pages.
AttentionProblem Forked(AttentionProblem problem, std::int64_t shared_prefix_pages);

// The shape table.
std::vector<AttentionProblem> AttentionProblems();
// A few small shapes of every kind, on which all pairs of options are affordable.
std::vector<AttentionProblem> SmallAttentionProblems();

// The same shapes over pages, each with one of kPageTokens in turn; then lengths around whole pages, and forks.
std::vector<AttentionProblem> PagedAttentionProblems();
std::vector<AttentionProblem> SmallPagedAttentionProblems();

const std::vector<OptionVariant>& OptionVariants();
AttentionOptions With(const OptionVariant& variant);
AttentionOptions With(const OptionVariant& first, const OptionVariant& second);
// No option, each variant by itself, and each pair of variants of different options.
std::vector<AttentionOptions> OptionPairs();

// False for a combination that the contract excludes.
bool Allowed(const AttentionProblem& problem, const AttentionOptions& options);

}  // namespace ridgeline::support
