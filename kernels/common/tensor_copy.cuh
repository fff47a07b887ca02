// cp.async.bulk.tensor: the copy engine moves boxes of a tensor that a map describes (sm_90). PTX ISA, "Data Movement and
// Conversion Instructions: Tensor copy". tensor_map.h makes the maps. One thread issues a copy.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace ridgeline::kernels {

// Place of a box in a tensor of four dimensions, in elements, the innermost first.
struct TensorPlace {
  int x, y, z, w;
};

__device__ __forceinline__ void PrefetchTensorMap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}

// Queues the copy of a box to shared memory; its bytes, those outside the tensor as zeros, count for `barrier`.
__device__ __forceinline__ void TensorLoad(std::uint32_t destination, const CUtensorMap* map, std::uint32_t barrier,
                                           const TensorPlace& place) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];\n" ::"r"(
          destination),
      "l"(map), "r"(barrier), "r"(place.x), "r"(place.y), "r"(place.z), "r"(place.w)
      : "memory");
}

// The same to that place in each block of the cluster whose bit `blocks` has, and for the barrier there.
__device__ __forceinline__ void TensorLoadToCluster(std::uint32_t destination, const CUtensorMap* map, std::uint32_t barrier,
                                                    const TensorPlace& place, std::uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%3, %4, %5, %6}], [%2], %7;\n" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(place.x), "r"(place.y), "r"(place.z), "r"(place.w), "h"(blocks)
      : "memory");
}

// Queues the copy of a box from shared memory; what lies outside the tensor is not written.
__device__ __forceinline__ void TensorStore(const CUtensorMap* map, std::uint32_t source, const TensorPlace& place) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];\n" ::"l"(map), "r"(source),
               "r"(place.x), "r"(place.y), "r"(place.z), "r"(place.w)
               : "memory");
}

// Closes a group of this thread's stores.
__device__ __forceinline__ void TensorStoreCommit() { asm volatile("cp.async.bulk.commit_group;\n" ::: "memory"); }

// Waits until this thread's stores have read their sources.
__device__ __forceinline__ void TensorStoreWaitRead() { asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory"); }

// Orders this thread's ordinary accesses of shared memory before what the copy engine and the matrix unit do with it later. Put
// it before stores to global memory: it would wait for them.
__device__ __forceinline__ void SharedToAsyncFence() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

}  // namespace ridgeline::kernels
