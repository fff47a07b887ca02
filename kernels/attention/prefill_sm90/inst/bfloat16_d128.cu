#include "kernels/attention/prefill_sm90/prefill_launch.cuh"

namespace ridgeline::kernels::attention {

RIDGELINE_INSTANTIATE_PREFILL(__nv_bfloat16, kPrefill128)

}  // namespace ridgeline::kernels::attention
