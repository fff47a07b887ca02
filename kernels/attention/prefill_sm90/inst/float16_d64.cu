#include "kernels/attention/prefill_sm90/prefill_launch.cuh"

namespace ridgeline::kernels::attention {

RIDGELINE_INSTANTIATE_PREFILL(__half, kPrefill64Long)
RIDGELINE_INSTANTIATE_PREFILL(__half, kPrefill64Short)
RIDGELINE_INSTANTIATE_PREFILL(__half, kPrefill64ShortCausal)

}  // namespace ridgeline::kernels::attention
