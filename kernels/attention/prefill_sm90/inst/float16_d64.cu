#include "kernels/attention/prefill_sm90/prefill_launch.cuh"

namespace ridgeline::kernels::attention {

RIDGELINE_INSTANTIATE_PREFILL(__half, kPrefill64Long)
RIDGELINE_INSTANTIATE_PREFILL(__half, kPrefill64)
RIDGELINE_INSTANTIATE_PREFILL(__half, kPrefill64Small)

}  // namespace ridgeline::kernels::attention
