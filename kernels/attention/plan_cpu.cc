#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>

#include "kernels/attention/flash/flash.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/standard/standard.h"
#include "kernels/common/saturating.h"

namespace ridgeline::kernels::attention {
namespace {

// "512 MiB": three digits and the largest unit that leaves at least 1.
std::string FormatBytes(std::int64_t bytes) {
  if (bytes == std::numeric_limits<std::int64_t>::max()) return "8 EiB or more";
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), value < 100 ? "%.3g %s" : "%.0f %s", value, kUnits[unit]);
  return text;
}

// Of S as a whole.
std::int64_t ScoreBytes(const AttentionShape& shape, const Sequence* sequences) {
  std::int64_t bytes = 0;
  for (std::int64_t i = 0; i < shape.num_sequences; ++i) {
    bytes = SaturatingAdd(bytes, SaturatingMultiply({sequences[i].query_tokens, sequences[i].key_tokens, shape.query_heads,
                                                     static_cast<std::int64_t>(sizeof(float))}));
  }
  return bytes;
}

}  // namespace

AttentionPlan PlanOnCpu(const AttentionShape& shape, const Sequence* sequences, std::optional<Algorithm> requested,
                        const CpuLimits& limits) {
  AttentionPlan plan = {};
  // Flash wherever the planner may choose. It was faster on every shape measured with the code that OpenBLAS 0.3.21 picks on
  // our machines, and where a faster sgemm overtakes it, S still costs the memory; standard/README.md has both measurements.
  plan.algorithm = requested.value_or(Algorithm::kFlash);
  plan.reason = requested.has_value() ? "the request names it"
                                      : "it needs no S, which would take " + FormatBytes(ScoreBytes(shape, sequences));
  if (plan.algorithm == Algorithm::kFlash) {
    PlanFlashOnCpu(shape, sequences, limits, plan);
  } else {
    plan.kernel = "standard_cpu[openblas]";
    plan.workspace_bytes = StandardWorkspaceBytes(shape, sequences);
  }
  return plan;
}

}  // namespace ridgeline::kernels::attention
