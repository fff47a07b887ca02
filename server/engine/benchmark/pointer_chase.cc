#include "server/engine/benchmark/pointer_chase.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/microbench/memory_hierarchy.h"
#include "server/base/status_macros.h"
#include "server/base/units.h"
#include "server/engine/benchmark/levels.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::microbench::ChaseParams;
using kernels::microbench::LinkParams;

// The order of a chain is made on the host, and sent.
constexpr std::int64_t kMostChainBytes = std::int64_t{1} << 30;
constexpr std::int64_t kMinSteps = 1 << 14, kMaxSteps = 1 << 18;

// A GPU's L1 cache is empty when a kernel begins: a short chain is gone through so often that this does not show.
constexpr std::int64_t kRounds = 64, kMostRoundsSteps = 1 << 17;

// One cycle through all nodes in random order (Sattolo's shuffle), so that no prefetcher guesses the next.
std::vector<std::int64_t> RandomCycle(std::int64_t num_nodes, std::uint64_t seed) {
  std::vector<std::int64_t> next(num_nodes);
  std::iota(next.begin(), next.end(), 0);
  std::mt19937_64 random(seed);
  for (std::int64_t i = num_nodes - 1; i > 0; --i) {
    std::swap(next[i], next[static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(i))]);
  }
  return next;
}

struct Chain {
  std::vector<std::int64_t> next;  // [num_nodes]
  Buffer next_on_device, nodes, cursor;
};

std::int64_t StepsOf(std::int64_t num_nodes) {
  return std::clamp(std::max(num_nodes, std::min(kRounds * num_nodes, kMostRoundsSteps)), kMinSteps, kMaxSteps);
}

absl::Status CheckChain(device::Lane& lane, const Chain& chain, std::int64_t node_bytes, std::int64_t steps) {
  RIDGELINE_ASSIGN_OR_RETURN(const auto host, measure::ReadBack(lane, chain.cursor, sizeof(void*)));
  const char* cursor = nullptr;
  std::memcpy(&cursor, host->data(), sizeof(cursor));
  std::int64_t want = 0;
  for (std::int64_t step = 0; step < steps; ++step) want = chain.next[want];
  const std::int64_t got_bytes = cursor - static_cast<const char*>(chain.nodes.data());
  return ExpectNear("the last node's place", static_cast<double>(got_bytes), static_cast<double>(want * node_bytes), 0);
}

}  // namespace

absl::StatusOr<Subject> MakeChase(const PointContext& context, std::int64_t working_set_bytes, std::int64_t line_bytes) {
  if (working_set_bytes > kMostChainBytes) {
    return absl::InvalidArgumentError(absl::StrCat("chains are built up to ", base::FormatBytes(kMostChainBytes)));
  }
  const std::int64_t num_nodes = working_set_bytes / line_bytes;
  auto chain = std::make_shared<Chain>();
  RIDGELINE_ASSIGN_OR_RETURN(chain->nodes, context.lane.Allocate(working_set_bytes));
  RIDGELINE_ASSIGN_OR_RETURN(chain->cursor, context.lane.Allocate(sizeof(void*)));
  chain->next = RandomCycle(num_nodes, context.seed);
  const device::HostSlice next{chain->next.data(), num_nodes * static_cast<std::int64_t>(sizeof(std::int64_t))};
  RIDGELINE_ASSIGN_OR_RETURN(chain->next_on_device, context.lane.Upload({&next, 1}, chain));
  const auto cursor = static_cast<void**>(chain->cursor.data());
  RIDGELINE_RETURN_IF_ERROR(context.lane.Run(LinkParams{.next = static_cast<const std::int64_t*>(chain->next_on_device.data()),
                                                        .nodes = chain->nodes.data(),
                                                        .cursor = cursor,
                                                        .num_nodes = num_nodes,
                                                        .node_bytes = line_bytes}));
  const ChaseParams params{.cursor = cursor, .steps = StepsOf(num_nodes)};
  return Subject{
      .kernel = absl::StrCat(KernelName(context, "chase"), "[steps=", params.steps, "]"),
      .bytes = params.steps * line_bytes,
      .queue = [params, chain](device::Lane& lane) { return lane.Run(params); },
      .check = [&lane = context.lane, params, chain, line_bytes] { return CheckChain(lane, *chain, line_bytes, params.steps); },
      .figures =
          [steps = params.steps](double seconds) {
            return std::map<std::string, double>{{"latency_seconds", seconds / static_cast<double>(steps)}};
          }};
}

Judgement JudgeChase(absl::Span<const Point> points) {
  std::vector<LatencySample> samples;
  for (const Point& point : points) {
    if (point.values.Word("operation") == "chase") {
      samples.push_back({point.values.Integer("working_set_bytes"), point.figures.at("latency_seconds")});
    }
  }
  std::sort(samples.begin(), samples.end(),
            [](const auto& a, const auto& b) { return a.working_set_bytes < b.working_set_bytes; });
  const std::vector<Level> levels = FindLevels(samples);
  if (levels.size() < 2) return NotEnoughPoints("the chase over working sets that reach from the first cache to memory");
  Judgement judgement{.verdict = VerdictOf(levels.back().seconds > 5 * levels.front().seconds),
                      .explanation = absl::StrCat("dependent loads see ", levels.size(), " levels: ")};
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const std::string what = absl::StrCat("level_", i + 1);
    const auto largest = static_cast<double>(levels[i].largest_bytes);
    absl::StrAppend(&judgement.explanation, i == 0 ? "" : ", ", TimeText(levels[i].seconds), " a load up to ",
                    SizeText(largest));
    judgement.findings.push_back({absl::StrCat(what, "_bytes"), largest, "the largest working set that sees its latency"});
    judgement.findings.push_back({absl::StrCat(what, "_latency_seconds"), levels[i].seconds, "of one dependent load"});
  }
  return judgement;
}

}  // namespace ridgeline::engine::benchmark
