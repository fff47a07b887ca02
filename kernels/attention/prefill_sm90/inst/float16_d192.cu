#include "kernels/attention/prefill_sm90/prefill_launch.cuh"

namespace ridgeline::kernels::attention {

RIDGELINE_INSTANTIATE_PREFILL(__half, kPrefill192To128)
RIDGELINE_INSTANTIATE_PREFILL(__half, kPrefill192)

}  // namespace ridgeline::kernels::attention
