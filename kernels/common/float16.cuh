// 16-bit floats in device code: conversion in pairs, as fragments hold them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace ridgeline::kernels {

// Two floats rounded to T (to nearest, ties to even), the first in the low half.
template <typename T>
__device__ __forceinline__ std::uint32_t PackPair(float low, float high);

template <>
__device__ __forceinline__ std::uint32_t PackPair<__half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  std::uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

template <>
__device__ __forceinline__ std::uint32_t PackPair<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  std::uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

template <typename T>
__device__ __forceinline__ float2 UnpackPair(std::uint32_t pair) {
  if constexpr (std::is_same_v<T, __half>) {
    __half2 halves;
    memcpy(&halves, &pair, sizeof(pair));
    return __half22float2(halves);
  } else {
    // A bfloat16 is the upper half of a float.
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000)};
  }
}

__device__ __forceinline__ float ToFloat(__half value) { return __half2float(value); }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float ToFloat(float value) { return value; }

template <typename T>
__device__ __forceinline__ T FromFloat(float value);
template <>
__device__ __forceinline__ float FromFloat<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __half FromFloat<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 FromFloat<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

// All bits of the exponent, in both halves of a pair: where they are all set there is an Inf or a NaN.
template <typename T>
inline constexpr std::uint32_t kExponentMask = 0x7c007c00;
template <>
inline constexpr std::uint32_t kExponentMask<__nv_bfloat16> = 0x7f807f80;

// For each half of a pair: ones if it is Inf or NaN, else zeros.
template <typename T>
__device__ __forceinline__ std::uint32_t NonFiniteMask(std::uint32_t pair) {
  return __vcmpeq2(pair & kExponentMask<T>, kExponentMask<T>);
}

// Notes an Inf or a NaN among pairs in one instruction each: a product with zero keeps nothing else. Starts from zero.
template <typename T>
__device__ __forceinline__ void NoteNonFinite(std::uint32_t& noted, std::uint32_t pair);
template <>
__device__ __forceinline__ void NoteNonFinite<__half>(std::uint32_t& noted, std::uint32_t pair) {
  asm("fma.rn.f16x2 %0, %1, %2, %0;\n" : "+r"(noted) : "r"(pair), "r"(0u));
}
template <>
__device__ __forceinline__ void NoteNonFinite<__nv_bfloat16>(std::uint32_t& noted, std::uint32_t pair) {
  asm("fma.rn.bf16x2 %0, %1, %2, %0;\n" : "+r"(noted) : "r"(pair), "r"(0u));
}
// Whether any was.
template <typename T>
__device__ __forceinline__ bool HasNonFinite(std::uint32_t noted) {
  return (noted & kExponentMask<T>) != 0;
}

}  // namespace ridgeline::kernels
