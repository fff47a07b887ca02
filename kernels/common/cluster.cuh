// Thread block clusters (sm_90 and newer): blocks that run at the same time and write to each other's shared memory. PTX ISA,
// "barrier.cluster", "mapa", "st.async". Elsewhere a cluster is one block, and nothing here is called.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ridgeline::kernels {

__device__ __forceinline__ int ClusterRank() {
  std::uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
#endif
  return static_cast<int>(rank);
}

__device__ __forceinline__ std::uint32_t ClusterIdx() {
  std::uint32_t idx = blockIdx.x;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%clusterid.x;\n" : "=r"(idx));
#endif
  return idx;
}

__device__ __forceinline__ std::uint32_t NumClusters() {
  std::uint32_t count = gridDim.x;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%nclusterid.x;\n" : "=r"(count));
#endif
  return count;
}

// All threads of all blocks of the cluster arrive; writes before it, to any of them, are seen after it.
__device__ __forceinline__ void ClusterSync() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n" ::: "memory");
#endif
}

// Arrives at the barrier that lies at `barrier`, a shared address, in the cluster's block `rank`: to say that what lies here
// has been read and may be overwritten. What the thread has written is not released to that block: that would make it wait,
// each time, for all of its stores to global memory. PTX ISA, "mbarrier.arrive".
__device__ __forceinline__ void ArriveInCluster([[maybe_unused]] std::uint32_t barrier, [[maybe_unused]] int rank) {
#if __CUDA_ARCH__ >= 900
  std::uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(remote) : "r"(barrier), "r"(rank));
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];\n" ::"r"(remote) : "memory");
#endif
}

// Writes 16 bytes to where `local`, a shared address, lies in the cluster's block `rank`; they count for the barrier that lies
// there at `barrier`. Who has waited for that barrier sees them: no fence, which would wait for stores to global memory too.
// PTX ISA, "st.async".
__device__ __forceinline__ void StoreInCluster([[maybe_unused]] std::uint32_t local, [[maybe_unused]] std::uint32_t barrier,
                                               [[maybe_unused]] int rank, [[maybe_unused]] float4 value) {
#if __CUDA_ARCH__ >= 900
  std::uint32_t remote, remote_barrier;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(remote) : "r"(local), "r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(remote_barrier) : "r"(barrier), "r"(rank));
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];\n" ::"r"(remote),
               "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(remote_barrier)
               : "memory");
#endif
}

}  // namespace ridgeline::kernels
