// createpolicy: how the L2 cache is to treat the lines of an access (sm_80 and newer). PTX ISA, "Data Movement and Conversion
// Instructions: createpolicy".
#pragma once

#include <cstdint>

namespace ridgeline::kernels {

// As an access without a policy.
__device__ __forceinline__ std::uint64_t EvictNormalPolicy() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;\n" : "=l"(policy));
  return policy;
}

// The lines are the first to go: for what is read once.
__device__ __forceinline__ std::uint64_t EvictFirstPolicy() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\n" : "=l"(policy));
  return policy;
}

}  // namespace ridgeline::kernels
