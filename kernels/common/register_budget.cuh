// setmaxnreg: warpgroups of one block trade registers (sm_90a). PTX ISA, "Miscellaneous Instructions: setmaxnreg". What all
// warpgroups hold together must fit what the launch gave the block, or the one that asks for more waits for ever.
#pragma once

namespace ridgeline::kernels {

// By all warps of a warpgroup. kRegisters: of a thread, a multiple of 8.
template <int kRegisters>
__device__ __forceinline__ void RaiseRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void LowerRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

}  // namespace ridgeline::kernels
