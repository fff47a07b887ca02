#include "tests/support/attention_shapes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/data_type.h"

namespace ridgeline::support {
namespace {

using kernels::DataType;
using Problems = std::vector<AttentionProblem>;

std::string Join(const std::vector<std::int64_t>& numbers) {
  std::string joined;
  for (const std::int64_t number : numbers) joined.append(joined.empty() ? "" : "_").append(std::to_string(number));
  return joined.empty() ? "none" : joined;
}

std::string HeadsName(const AttentionProblem& problem) {
  std::string name = "_h" + std::to_string(problem.query_heads) + "_kv" + std::to_string(problem.kv_heads) + "_d" +
                     std::to_string(problem.head_dim);
  if (problem.value_head_dim != problem.head_dim) name += "_dv" + std::to_string(problem.value_head_dim);
  return name;
}

// One token, and one less and one more than each tile size that a kernel is likely to have, in both lengths.
void AddTileEdges(Problems& problems) {
  problems.push_back(DenseProblem(1, 1, 1, 1, 1, 64, 64));
  for (const std::int64_t tile : {16, 32, 48, 64, 96, 128, 192, 256}) {
    for (const std::int64_t tokens : {tile - 1, tile, tile + 1})
      problems.push_back(DenseProblem(1, tokens, tokens, 2, 1, 32, 32));
    problems.push_back(DenseProblem(1, tile + 1, tile - 1, 1, 1, 64, 64));
    problems.push_back(DenseProblem(1, tile - 1, tile + 1, 1, 1, 64, 64));
  }
}

void AddUnequalLengths(Problems& problems) {
  for (const auto& [query_tokens, key_tokens] :
       {std::pair{2, 1}, {33, 2}, {129, 16}, {300, 65}, {2, 33}, {16, 129}, {65, 300}}) {
    problems.push_back(DenseProblem(2, query_tokens, key_tokens, 2, 2, 64, 64));
  }
}

void AddHeadDims(Problems& problems) {
  for (std::int64_t head_dim = 8; head_dim <= 256; head_dim += 8) {
    problems.push_back(DenseProblem(1, 9, 37, 2, 1, head_dim, head_dim));
  }
  for (const auto& [head_dim, value_head_dim] :
       {std::pair{192, 128}, {64, 128}, {128, 64}, {40, 72}, {72, 40}, {8, 256}, {256, 8}}) {
    problems.push_back(DenseProblem(2, 17, 35, 2, 2, head_dim, value_head_dim));
  }
}

// Each for many queries and for one, where a kernel packs the heads of a group into one tile.
void AddHeadRatios(Problems& problems) {
  for (const std::int64_t ratio : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
    problems.push_back(DenseProblem(2, 19, 34, 2 * ratio, 2, 64, 64));
    problems.push_back(DenseProblem(2, 1, 131, 2 * ratio, 2, 64, 64));
  }
  problems.push_back(DenseProblem(1, 18, 33, 12, 1, 64, 64));  // one KV head for all
  problems.push_back(DenseProblem(3, 1, 70, 71, 1, 64, 64));
}

void AddLengths(Problems& problems) {
  problems.push_back(PaddedProblem(5, 67, {0, 1, 67}, 4, 2, 64));
  problems.push_back(PaddedProblem(64, 64, {64, 63, 1, 0, 33}, 2, 1, 64));
  problems.push_back(PaddedProblem(1, 300, {300, 0, 1, 129, 256, 257}, 6, 2, 128));
}

void AddRagged(Problems& problems) {
  problems.push_back(RaggedProblem({5}, {5}, 2, 1, 64));
  problems.push_back(RaggedProblem({0, 5, 1, 0, 64, 3, 0}, {7, 5, 0, 0, 65, 200, 0}, 4, 2, 64));
  problems.push_back(RaggedProblem({1, 1, 1, 1, 1}, {1, 513, 64, 17, 255}, 8, 2, 64));
  problems.push_back(RaggedProblem({1, 33, 2, 129}, {40, 33, 2, 129}, 3, 3, 80));
  problems.push_back(RaggedProblem({17, 1}, {3, 1}, 2, 2, 96));
}

void AddEmpty(Problems& problems) {
  problems.push_back(DenseProblem(0, 4, 4, 2, 1, 64, 64));
  problems.push_back(DenseProblem(3, 0, 9, 2, 1, 64, 64));
  problems.push_back(DenseProblem(3, 9, 0, 2, 1, 64, 64));
  problems.push_back(DenseProblem(2, 0, 0, 2, 1, 64, 64));
  problems.push_back(RaggedProblem({}, {}, 2, 1, 64));
  problems.push_back(RaggedProblem({0, 0}, {0, 3}, 2, 1, 64));
}

void AddLong(Problems& problems) {
  problems.push_back(DenseProblem(1, 1, 8193, 4, 1, 64, 64));
  problems.push_back(DenseProblem(1, 3, 4097, 2, 1, 128, 128));
  problems.push_back(DenseProblem(2, 1, 2048, 8, 8, 64, 64));
  problems.push_back(DenseProblem(1, 769, 769, 1, 1, 16, 16));
}

Problems InPages(Problems problems) {
  std::size_t turn = 0;
  for (AttentionProblem& problem : problems) problem = Paged(std::move(problem), kPageTokens[turn++ % std::size(kPageTokens)]);
  return problems;
}

// One less and one more than whole pages, for one query and for more: sequences shorter than a page, and without any.
void AddPageEdges(Problems& problems) {
  for (const std::int64_t page_tokens : kPageTokens) {
    for (const std::int64_t query_tokens : {1, 5, 33}) {
      std::vector<std::int64_t> lengths;
      for (const std::int64_t pages : {0, 1, 2, 3}) {
        for (const std::int64_t off : {-1, 0, 1}) lengths.push_back(std::max<std::int64_t>(0, pages * page_tokens + off));
      }
      std::vector<std::int64_t> queries(lengths.size(), query_tokens);
      problems.push_back(Paged(RaggedProblem(std::move(queries), std::move(lengths), 4, 2, 64), page_tokens));
    }
  }
}

// Decode steps, and a chunk, of sequences that begin with the same pages.
void AddForks(Problems& problems) {
  for (const std::int64_t page_tokens : {1, 16, 64}) {
    const std::int64_t shared = 300 / page_tokens;
    problems.push_back(Forked(Paged(RaggedProblem({1, 1, 1, 1}, {301, 300, 420, 20}, 8, 2, 128), page_tokens), shared));
    problems.push_back(Forked(Paged(RaggedProblem({17, 1, 40}, {320, 333, 310}, 4, 2, 64), page_tokens), shared));
  }
}

}  // namespace

AttentionOptions Causal() {
  AttentionOptions options;
  options.name = "causal";
  options.causal = true;
  return options;
}

AttentionProblem DenseProblem(std::int64_t batch, std::int64_t query_tokens, std::int64_t key_tokens, std::int64_t query_heads,
                              std::int64_t kv_heads, std::int64_t head_dim, std::int64_t value_head_dim) {
  AttentionProblem problem;
  problem.query_heads = query_heads;
  problem.kv_heads = kv_heads;
  problem.head_dim = head_dim;
  problem.value_head_dim = value_head_dim;
  problem.query_tokens = std::vector(batch, query_tokens);
  problem.key_tokens = std::vector(batch, key_tokens);
  problem.dense_key_tokens = key_tokens;
  problem.name = "dense_b" + std::to_string(batch) + "_q" + std::to_string(query_tokens) + "_k" + std::to_string(key_tokens) +
                 HeadsName(problem);
  return problem;
}

AttentionProblem PaddedProblem(std::int64_t query_tokens, std::int64_t key_tokens, std::vector<std::int64_t> lengths,
                               std::int64_t query_heads, std::int64_t kv_heads, std::int64_t head_dim) {
  AttentionProblem problem = DenseProblem(static_cast<std::int64_t>(lengths.size()), query_tokens, key_tokens, query_heads,
                                          kv_heads, head_dim, head_dim);
  problem.name += "_lengths_" + Join(lengths);
  problem.key_tokens = std::move(lengths);
  return problem;
}

AttentionProblem RaggedProblem(std::vector<std::int64_t> query_tokens, std::vector<std::int64_t> key_tokens,
                               std::int64_t query_heads, std::int64_t kv_heads, std::int64_t head_dim) {
  AttentionProblem problem;
  problem.query_heads = query_heads;
  problem.kv_heads = kv_heads;
  problem.head_dim = head_dim;
  problem.value_head_dim = head_dim;
  problem.query_tokens = std::move(query_tokens);
  problem.key_tokens = std::move(key_tokens);
  problem.name = "ragged_q_" + Join(problem.query_tokens) + "_k_" + Join(problem.key_tokens) + HeadsName(problem);
  return problem;
}

AttentionProblem Paged(AttentionProblem problem, std::int64_t page_tokens) {
  problem.page_tokens = page_tokens;
  problem.name += "_page" + std::to_string(page_tokens);
  return problem;
}

AttentionProblem Forked(AttentionProblem problem, std::int64_t shared_prefix_pages) {
  problem.shared_prefix_pages = shared_prefix_pages;
  problem.name += "_shared" + std::to_string(shared_prefix_pages);
  return problem;
}

std::int64_t AttentionProblem::SharedTokens(std::size_t sequence_idx) const {
  if (!paged()) return 0;
  return std::min({shared_prefix_pages, key_tokens[0] / page_tokens, key_tokens[sequence_idx] / page_tokens}) * page_tokens;
}

std::vector<AttentionProblem> AttentionProblems() {
  Problems problems;
  AddTileEdges(problems);
  AddUnequalLengths(problems);
  AddHeadDims(problems);
  AddHeadRatios(problems);
  AddLengths(problems);
  AddRagged(problems);
  AddEmpty(problems);
  AddLong(problems);
  return problems;
}

std::vector<AttentionProblem> SmallAttentionProblems() {
  return {DenseProblem(2, 9, 9, 4, 2, 16, 16),           DenseProblem(1, 6, 37, 3, 1, 8, 24),
          DenseProblem(1, 19, 5, 2, 2, 16, 16),          DenseProblem(2, 1, 67, 6, 2, 16, 16),
          PaddedProblem(5, 18, {0, 1, 17, 18}, 2, 1, 8), RaggedProblem({0, 3, 1, 7}, {4, 3, 0, 19}, 4, 2, 16)};
}

std::vector<AttentionProblem> PagedAttentionProblems() {
  Problems problems = InPages(AttentionProblems());
  AddPageEdges(problems);
  AddForks(problems);
  return problems;
}

std::vector<AttentionProblem> SmallPagedAttentionProblems() {
  Problems problems = InPages(SmallAttentionProblems());
  problems.push_back(Forked(Paged(RaggedProblem({1, 2, 1}, {19, 9, 40}, 4, 2, 16), 4), 3));
  return problems;
}

const std::vector<OptionVariant>& OptionVariants() {
  static const auto* const variants = new std::vector<OptionVariant>{
      {"causal", "causal", [](AttentionOptions& o) { o.causal = true; }},
      {"left_0", "window", [](AttentionOptions& o) { o.window_left = 0; }},
      {"left_1", "window", [](AttentionOptions& o) { o.window_left = 1; }},
      {"right_0", "window", [](AttentionOptions& o) { o.window_right = 0; }},
      {"right_1", "window", [](AttentionOptions& o) { o.window_right = 1; }},
      {"diagonal", "window", [](AttentionOptions& o) { o.window_left = o.window_right = 0; }},
      {"left_5_right_2", "window", [](AttentionOptions& o) { o.window_left = 5, o.window_right = 2; }},
      {"wide", "window", [](AttentionOptions& o) { o.window_left = o.window_right = std::int64_t{1} << 40; }},
      {"soft_cap", "logit_soft_cap", [](AttentionOptions& o) { o.logit_soft_cap = 1.5; }},
      {"alibi", "alibi_slopes", [](AttentionOptions& o) { o.alibi = true; }},
      {"sink", "sink_logits", [](AttentionOptions& o) { o.sink = Sink::kFinite; }},
      {"no_sink_for_some", "sink_logits", [](AttentionOptions& o) { o.sink = Sink::kSomeMinusInfinity; }},
      {"bias", "bias", [](AttentionOptions& o) { o.bias = Bias::kFull; }},
      {"bias_of_batch", "bias", [](AttentionOptions& o) { o.bias = Bias::kSharedByBatch; }},
      {"bias_of_heads", "bias", [](AttentionOptions& o) { o.bias = Bias::kSharedByHeads; }},
      {"bias_of_all", "bias", [](AttentionOptions& o) { o.bias = Bias::kSharedByAll; }},
      {"bias_hides", "bias", [](AttentionOptions& o) { o.bias = Bias::kSomeMinusInfinity; }},
      {"scale_0", "scale", [](AttentionOptions& o) { o.scale = 0; }},
      {"scale_negative", "scale", [](AttentionOptions& o) { o.scale = -0.3; }},
      {"scale_large", "scale", [](AttentionOptions& o) { o.scale = 40; }},
      {"no_log_sum_exp", "log_sum_exp", [](AttentionOptions& o) { o.log_sum_exp = false; }},
      {"to_float32", "data_type", [](AttentionOptions& o) { o.output_data_type = DataType::kFloat32; }},
      {"to_float16", "data_type", [](AttentionOptions& o) { o.output_data_type = DataType::kFloat16; }},
      {"to_bfloat16", "data_type", [](AttentionOptions& o) { o.output_data_type = DataType::kBFloat16; }},
  };
  return *variants;
}

AttentionOptions With(const OptionVariant& variant) {
  AttentionOptions options;
  variant.apply(options);
  options.name = variant.name;
  return options;
}

AttentionOptions With(const OptionVariant& first, const OptionVariant& second) {
  AttentionOptions options = With(first);
  second.apply(options);
  options.name = first.name + "_and_" + second.name;
  return options;
}

std::vector<AttentionOptions> OptionPairs() {
  const std::vector<OptionVariant>& variants = OptionVariants();
  std::vector<AttentionOptions> pairs(1);
  for (std::size_t i = 0; i < variants.size(); ++i) {
    pairs.push_back(With(variants[i]));
    for (std::size_t j = i + 1; j < variants.size(); ++j) {
      if (variants[i].option != variants[j].option) pairs.push_back(With(variants[i], variants[j]));
    }
  }
  return pairs;
}

bool Allowed(const AttentionProblem& problem, const AttentionOptions& options) {
  return options.bias == Bias::kNone || (!problem.ragged() && !problem.paged());
}

}  // namespace ridgeline::support
