#include "kernels/attention/score_bytes.h"

#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

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

std::string NeedsNoScores(const AttentionShape& shape, const Sequence* sequences) {
  return "it needs no S, which would take " + FormatBytes(ScoreBytes(shape, sequences));
}

}  // namespace ridgeline::kernels::attention
