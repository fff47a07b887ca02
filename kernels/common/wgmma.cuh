// wgmma: D[64,N] += A[64,16] · B[16,N] by a warpgroup, 16-bit inputs, float32 sums, B (and A, if it is not in registers) read
// from shared memory, asynchronously (sm_90a). PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions". Warp w of the four
// holds rows 16w to 16w+15; with g = lane / 4, t = lane % 4 a lane has, of its warp's rows,
//
//   D: d[4n], d[4n+1] row g, d[4n+2], d[4n+3] row g+8, columns 8n + 2t, 8n + 2t + 1
//   A: a[0] row g, a[1] row g+8, columns 2t, 2t+1;  a[2] row g, a[3] row g+8, columns 2t+8, 2t+9
//
// so that two neighbouring groups of D, rounded, are an A. Between WgmmaFence and the wait for its group, a product's registers
// and shared memory belong to it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace ridgeline::kernels {

// Before the first product after registers or shared memory that it uses were written.
__device__ __forceinline__ void WgmmaFence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
// Closes a group of products.
__device__ __forceinline__ void WgmmaCommit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
// Waits until at most kPending groups, the newest, are still under way.
template <int kPending>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving uses of the registers across this place: across a product's fence or the wait for it.
template <int kRegisters>
__device__ __forceinline__ void PinRegisters(float (&registers)[kRegisters]) {
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int kRegisters>
__device__ __forceinline__ void PinRegisters(std::uint32_t (&registers)[kRegisters]) {
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

// An operand in shared memory in the 128-byte swizzle, at an address that is a multiple of 1024 (or, along K of a K-major
// operand, of 32 inside a row).
//   K-major (rows of 64 elements of K):  the next 8 rows are 1024 bytes on; `lead_bytes` is not used
//   MN-major (rows of 64 elements of N): the next 8 of K are 1024 bytes on, the next 64 of N `lead_bytes`
class WgmmaOperand {
 public:
  __device__ WgmmaOperand(std::uint32_t address, std::uint32_t lead_bytes)
      : bits_(kSwizzle128AndStride << 32 | (lead_bytes >> 4) << 16 | (address & 0x3ffff) >> 4) {}

  // What lies so many bytes further on.
  __device__ WgmmaOperand At(int bytes) const { return WgmmaOperand(bits_ + static_cast<std::uint64_t>(bytes >> 4)); }

  // The descriptor. Sums are of 64 bits, though they stay within 32: that is one instruction for both halves.
  __device__ std::uint64_t bits() const { return bits_; }

 private:
  static constexpr std::uint64_t kSwizzle128AndStride = 1u << 30 | 1024 >> 4;

  __device__ explicit WgmmaOperand(std::uint64_t bits) : bits_(bits) {}

  std::uint64_t bits_;
};

// The products of N columns, one specialisation for each N. T: __half or __nv_bfloat16.
//   Shared     A and B in shared memory, both K-major
//   Registers  A in registers; B K-major, or MN-major if kTransposedB
// Without kAccumulates D is overwritten.
template <int N>
struct Wgmma;

// An instruction names its registers one by one, in a literal; here they are put together from pieces of eight.
#define RIDGELINE_REGS_0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define RIDGELINE_REGS_1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define RIDGELINE_REGS_2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define RIDGELINE_REGS_3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define RIDGELINE_REGS_4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define RIDGELINE_REGS_5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define RIDGELINE_REGS_6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define RIDGELINE_REGS_7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define RIDGELINE_REGS_8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define RIDGELINE_REGS_9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define RIDGELINE_REGS_10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define RIDGELINE_REGS_11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define RIDGELINE_REGS_12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define RIDGELINE_REGS_13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define RIDGELINE_REGS_14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define RIDGELINE_REGS_15 "%120, %121, %122, %123, %124, %125, %126, %127"
#define RIDGELINE_OUT(i)                                                                                              \
  "+f"(d[8 * i]), "+f"(d[8 * i + 1]), "+f"(d[8 * i + 2]), "+f"(d[8 * i + 3]), "+f"(d[8 * i + 4]), "+f"(d[8 * i + 5]), \
      "+f"(d[8 * i + 6]), "+f"(d[8 * i + 7])

// a to g: the numbers of the operands behind D's.
#define RIDGELINE_WGMMA_SHARED(N, type, registers, outputs, a, b, c)                                                         \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #c ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type \
               " {" registers "}, %" #a ", %" #b ", p, 1, 1, 0, 0;\n}\n"                                                     \
               : outputs                                                                                                     \
               : "l"(operand_a.bits()), "l"(operand_b.bits()), "n"(kAccumulates))
#define RIDGELINE_WGMMA_REGISTERS(N, type, registers, outputs, a, b, c, d_, e, f, g)                                         \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #f ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type \
               " {" registers "}, {%" #a ", %" #b ", %" #c ", %" #d_ "}, %" #e ", p, 1, 1, %" #g ";\n}\n"                    \
               : outputs                                                                                                     \
               : "r"(fragment_a[0]), "r"(fragment_a[1]), "r"(fragment_a[2]), "r"(fragment_a[3]), "l"(operand_b.bits()),      \
                 "n"(kAccumulates), "n"(kTransposedB))
#define RIDGELINE_WGMMA(N, registers, outputs, a, b, c, d_, e, f, g)                                                   \
  template <>                                                                                                          \
  struct Wgmma<N> {                                                                                                    \
    template <typename T, bool kAccumulates>                                                                           \
    __device__ static __forceinline__ void Shared(float (&d)[N / 2], WgmmaOperand operand_a, WgmmaOperand operand_b) { \
      if constexpr (std::is_same_v<T, __half>) {                                                                       \
        RIDGELINE_WGMMA_SHARED(N, "f16", registers, RIDGELINE_LIST outputs, a, b, c);                                  \
      } else {                                                                                                         \
        RIDGELINE_WGMMA_SHARED(N, "bf16", registers, RIDGELINE_LIST outputs, a, b, c);                                 \
      }                                                                                                                \
    }                                                                                                                  \
    template <typename T, bool kAccumulates, bool kTransposedB>                                                        \
    __device__ static __forceinline__ void Registers(float (&d)[N / 2], const std::uint32_t (&fragment_a)[4],          \
                                                     WgmmaOperand operand_b) {                                         \
      if constexpr (std::is_same_v<T, __half>) {                                                                       \
        RIDGELINE_WGMMA_REGISTERS(N, "f16", registers, RIDGELINE_LIST outputs, a, b, c, d_, e, f, g);                  \
      } else {                                                                                                         \
        RIDGELINE_WGMMA_REGISTERS(N, "bf16", registers, RIDGELINE_LIST outputs, a, b, c, d_, e, f, g);                 \
      }                                                                                                                \
    }                                                                                                                  \
  }
#define RIDGELINE_LIST(...) __VA_ARGS__

RIDGELINE_WGMMA(32, RIDGELINE_REGS_0 ", " RIDGELINE_REGS_1, (RIDGELINE_OUT(0), RIDGELINE_OUT(1)), 16, 17, 18, 19, 20, 21, 22);
RIDGELINE_WGMMA(64, RIDGELINE_REGS_0 ", " RIDGELINE_REGS_1 ", " RIDGELINE_REGS_2 ", " RIDGELINE_REGS_3,
                (RIDGELINE_OUT(0), RIDGELINE_OUT(1), RIDGELINE_OUT(2), RIDGELINE_OUT(3)), 32, 33, 34, 35, 36, 37, 38);
RIDGELINE_WGMMA(80, RIDGELINE_REGS_0 ", " RIDGELINE_REGS_1 ", " RIDGELINE_REGS_2 ", " RIDGELINE_REGS_3 ", " RIDGELINE_REGS_4,
                (RIDGELINE_OUT(0), RIDGELINE_OUT(1), RIDGELINE_OUT(2), RIDGELINE_OUT(3), RIDGELINE_OUT(4)), 40, 41, 42, 43, 44,
                45, 46);
RIDGELINE_WGMMA(96,
                RIDGELINE_REGS_0 ", " RIDGELINE_REGS_1 ", " RIDGELINE_REGS_2 ", " RIDGELINE_REGS_3 ", " RIDGELINE_REGS_4
                                 ", " RIDGELINE_REGS_5,
                (RIDGELINE_OUT(0), RIDGELINE_OUT(1), RIDGELINE_OUT(2), RIDGELINE_OUT(3), RIDGELINE_OUT(4), RIDGELINE_OUT(5)),
                48, 49, 50, 51, 52, 53, 54);
RIDGELINE_WGMMA(112,
                RIDGELINE_REGS_0 ", " RIDGELINE_REGS_1 ", " RIDGELINE_REGS_2 ", " RIDGELINE_REGS_3 ", " RIDGELINE_REGS_4
                                 ", " RIDGELINE_REGS_5 ", " RIDGELINE_REGS_6,
                (RIDGELINE_OUT(0), RIDGELINE_OUT(1), RIDGELINE_OUT(2), RIDGELINE_OUT(3), RIDGELINE_OUT(4), RIDGELINE_OUT(5),
                 RIDGELINE_OUT(6)),
                56, 57, 58, 59, 60, 61, 62);
RIDGELINE_WGMMA(128,
                RIDGELINE_REGS_0 ", " RIDGELINE_REGS_1 ", " RIDGELINE_REGS_2 ", " RIDGELINE_REGS_3 ", " RIDGELINE_REGS_4
                                 ", " RIDGELINE_REGS_5 ", " RIDGELINE_REGS_6 ", " RIDGELINE_REGS_7,
                (RIDGELINE_OUT(0), RIDGELINE_OUT(1), RIDGELINE_OUT(2), RIDGELINE_OUT(3), RIDGELINE_OUT(4), RIDGELINE_OUT(5),
                 RIDGELINE_OUT(6), RIDGELINE_OUT(7)),
                64, 65, 66, 67, 68, 69, 70);
RIDGELINE_WGMMA(192,
                RIDGELINE_REGS_0 ", " RIDGELINE_REGS_1 ", " RIDGELINE_REGS_2 ", " RIDGELINE_REGS_3 ", " RIDGELINE_REGS_4
                                 ", " RIDGELINE_REGS_5 ", " RIDGELINE_REGS_6 ", " RIDGELINE_REGS_7 ", " RIDGELINE_REGS_8
                                 ", " RIDGELINE_REGS_9 ", " RIDGELINE_REGS_10 ", " RIDGELINE_REGS_11,
                (RIDGELINE_OUT(0), RIDGELINE_OUT(1), RIDGELINE_OUT(2), RIDGELINE_OUT(3), RIDGELINE_OUT(4), RIDGELINE_OUT(5),
                 RIDGELINE_OUT(6), RIDGELINE_OUT(7), RIDGELINE_OUT(8), RIDGELINE_OUT(9), RIDGELINE_OUT(10), RIDGELINE_OUT(11)),
                96, 97, 98, 99, 100, 101, 102);
RIDGELINE_WGMMA(256,
                RIDGELINE_REGS_0 ", " RIDGELINE_REGS_1 ", " RIDGELINE_REGS_2 ", " RIDGELINE_REGS_3 ", " RIDGELINE_REGS_4
                                 ", " RIDGELINE_REGS_5 ", " RIDGELINE_REGS_6 ", " RIDGELINE_REGS_7 ", " RIDGELINE_REGS_8
                                 ", " RIDGELINE_REGS_9 ", " RIDGELINE_REGS_10 ", " RIDGELINE_REGS_11 ", " RIDGELINE_REGS_12
                                 ", " RIDGELINE_REGS_13 ", " RIDGELINE_REGS_14 ", " RIDGELINE_REGS_15,
                (RIDGELINE_OUT(0), RIDGELINE_OUT(1), RIDGELINE_OUT(2), RIDGELINE_OUT(3), RIDGELINE_OUT(4), RIDGELINE_OUT(5),
                 RIDGELINE_OUT(6), RIDGELINE_OUT(7), RIDGELINE_OUT(8), RIDGELINE_OUT(9), RIDGELINE_OUT(10), RIDGELINE_OUT(11),
                 RIDGELINE_OUT(12), RIDGELINE_OUT(13), RIDGELINE_OUT(14), RIDGELINE_OUT(15)),
                128, 129, 130, 131, 132, 133, 134);

#undef RIDGELINE_REGS_0
#undef RIDGELINE_REGS_1
#undef RIDGELINE_REGS_2
#undef RIDGELINE_REGS_3
#undef RIDGELINE_REGS_4
#undef RIDGELINE_REGS_5
#undef RIDGELINE_REGS_6
#undef RIDGELINE_REGS_7
#undef RIDGELINE_REGS_8
#undef RIDGELINE_REGS_9
#undef RIDGELINE_REGS_10
#undef RIDGELINE_REGS_11
#undef RIDGELINE_REGS_12
#undef RIDGELINE_REGS_13
#undef RIDGELINE_REGS_14
#undef RIDGELINE_REGS_15
#undef RIDGELINE_OUT
#undef RIDGELINE_WGMMA_SHARED
#undef RIDGELINE_WGMMA_REGISTERS
#undef RIDGELINE_WGMMA
#undef RIDGELINE_LIST

}  // namespace ridgeline::kernels
