#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>

#include "kernels/attention/flash/flash.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/standard/standard.h"

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

}  // namespace

AttentionPlan PlanOnCpu(const AttentionShape& shape, const Sequence* sequences, std::optional<Algorithm> requested,
                        const CpuLimits& limits) {
  AttentionPlan plan = {};
  const std::int64_t standard_workspace_bytes = StandardWorkspaceBytes(shape, sequences);
  plan.algorithm = requested.value_or(Algorithm::kFlash);
  plan.reason = requested.has_value()
                    ? "the request names it"
                    : "it is the faster one here and standard would take " + FormatBytes(standard_workspace_bytes) + " for S";
  if (plan.algorithm == Algorithm::kFlash) {
    PlanFlashOnCpu(shape, sequences, limits, plan);
  } else {
    plan.kernel = "standard_cpu[openblas]";
    plan.workspace_bytes = standard_workspace_bytes;
  }
  return plan;
}

}  // namespace ridgeline::kernels::attention
