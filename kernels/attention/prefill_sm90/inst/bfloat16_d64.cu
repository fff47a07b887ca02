#include "kernels/attention/prefill_sm90/prefill_launch.cuh"

namespace ridgeline::kernels::attention {

RIDGELINE_INSTANTIATE_PREFILL(__nv_bfloat16, kPrefill64Long)
RIDGELINE_INSTANTIATE_PREFILL(__nv_bfloat16, kPrefill64)
RIDGELINE_INSTANTIATE_PREFILL(__nv_bfloat16, kPrefill64Small)

}  // namespace ridgeline::kernels::attention
