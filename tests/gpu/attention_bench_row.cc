#include "tests/gpu/attention_bench_row.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

namespace ridgeline::gpu {

namespace {

using kernels::DataType;
using kernels::attention::Algorithm;
using kernels::attention::Sequence;

std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

bool ParseAlgorithm(const std::string& word, Algorithm& algorithm) {
  algorithm = word == "standard" ? Algorithm::kStandard : Algorithm::kFlash;
  return word == Name(algorithm);
}

bool ParseType(const std::string& word, DataType& type) {
  for (const DataType candidate : {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    type = candidate;
    if (word == Name(candidate)) return true;
  }
  return false;
}

// "name=value", or "lengths=value,value,...".
bool ParseOption(const std::string& word, AttentionBenchRow& row) {
  const std::array<std::pair<const char*, std::int64_t*>, 12> numbers = {{{"value_head_dim", &row.value_head_dim},
                                                                          {"page_tokens", &row.page_tokens},
                                                                          {"window", &row.window},
                                                                          {"query_factor", &row.query_factor},
                                                                          {"drift", &row.drift},
                                                                          {"key_sinks", &row.key_sinks},
                                                                          {"layer", &row.layer},
                                                                          {"soft_cap", &row.soft_cap},
                                                                          {"alibi", &row.alibi},
                                                                          {"bias", &row.bias},
                                                                          {"sink_logits", &row.sink_logits},
                                                                          {"lse", &row.lse}}};
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos) return false;
  const std::string name = word.substr(0, equals);
  std::istringstream values(word.substr(equals + 1));
  if (name == "lengths") {
    row.lengths.clear();
    for (std::string length; std::getline(values, length, ',');) row.lengths.push_back(std::stoll(length));
    return !row.lengths.empty();
  }
  for (const auto& [candidate, number] : numbers) {
    if (name == candidate) return static_cast<bool>(values >> *number);
  }
  return false;
}

}  // namespace

std::vector<Sequence> AttentionBenchRow::Sequences() const {
  std::vector<Sequence> sequences;
  std::int64_t query_begin = 0, key_begin = 0;
  for (std::size_t s = 0; s < (lengths.empty() ? static_cast<std::size_t>(batch) : lengths.size()); ++s) {
    const std::int64_t queries = lengths.empty() ? query_tokens : lengths[s];
    const std::int64_t keys = lengths.empty() ? key_tokens : lengths[s];
    sequences.push_back({.query_begin = query_begin,
                         .query_tokens = queries,
                         .key_begin = key_begin,
                         .key_tokens = keys,
                         .lse_begin = query_begin});
    query_begin += queries;
    key_begin += page_tokens > 0 ? CeilDiv(keys, page_tokens) : keys;
  }
  return sequences;
}

std::int64_t AttentionBenchRow::QueryTokens() const {
  const Sequence last = Sequences().back();
  return last.query_begin + last.query_tokens;
}

std::int64_t AttentionBenchRow::KeyTokens() const {
  const Sequence last = Sequences().back();
  if (page_tokens > 0) return (last.key_begin + CeilDiv(last.key_tokens, page_tokens)) * page_tokens;
  return last.key_begin + last.key_tokens;
}

bool ParseAttentionBenchRow(const std::string& line, AttentionBenchRow& row) {
  row = {};
  std::string algorithm, type;
  std::istringstream words(line);
  words >> algorithm >> type >> row.batch >> row.query_tokens >> row.key_tokens >> row.query_heads >> row.kv_heads >>
      row.head_dim >> row.causal;
  if (!words || row.batch < 1 || !ParseAlgorithm(algorithm, row.algorithm) || !ParseType(type, row.type)) return false;
  for (std::string option; words >> option;) {
    if (!ParseOption(option, row)) return false;
  }
  return true;
}

}  // namespace ridgeline::gpu
