// The reason for flash attention, in words.
#pragma once

#include <string>

#include "kernels/attention/attention.h"

namespace ridgeline::kernels::attention {

// "it needs no S, which would take 512 MiB".
std::string NeedsNoScores(const AttentionShape& shape, const Sequence* sequences);

}  // namespace ridgeline::kernels::attention
