#include "kernels/attention/prefill_sm90/prefill_launch.cuh"

namespace ridgeline::kernels::attention {

RIDGELINE_INSTANTIATE_PREFILL(__half, kPrefill256)

}  // namespace ridgeline::kernels::attention
