// The unfused mode: each operation as a chain of elementary steps, one kernel each, whose results go through memory. The chains
// are data, so both devices run the same ones, and a chain's bytes and operations are sums over its steps.
//
//   layer norm:  x ─mean─► mean    x, mean ─subtract─► c ─mean square─► variance ─rsqrt─► r    c, r ─multiply─► · ─multiply─► ·
//   ─add─► y
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/fused/fused.h"

namespace ridgeline::kernels::fused {

enum class StepKind : std::uint8_t {
  // Element by element: result = f(a), or f(a, b).
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kAffine,  // a * scale + shift
  kExp,
  kErf,
  kTanh,
  kSigmoid,
  kRsqrt,      // 1 / sqrt(a + shift)
  kApplyMask,  // b != 0 ? a * scale : 0
  kSine,       // of a revolutions
  kCosine,
  // A row becomes a statistic.
  kRowMean,
  kRowMeanSquare,
  kRowMax,
  kRowSum,
  // Of nothing but the options.
  kDropoutMask,
  kRopeRevolutions,  // position / wavelength less whole revolutions, of every element of a head; 0 where nothing turns
  // Within a head: element pair (u, v) becomes (-v, u); elements that don't turn become 0.
  kRopeSwap,
  kAppend,  // a: turned keys, to the pages, with the values
};

// How many elements a value has, and of what type.
enum class Extent : std::uint8_t {
  kNone,
  kRows,     // [R, N] of the tensor's type
  kKeys,     // [R, key_elems] of the tensor's type
  kColumns,  // [N] of the tensor's type
  kPerRow,   // [R] float32
  kMask,     // [R, N] uint8
  kAngles,   // [R, head_dim] float32
  kPerHead,  // [R, head_dim] of the tensor's type
};

enum class Buffer : std::uint8_t {
  kNone,
  kInput,
  kOther,
  kWeight,
  kBias,
  kOutput,
  kResidualOutput,
  kMaskOutput,
  kKey,
  kWorkspace
};

struct Value {
  Buffer buffer = Buffer::kNone;
  Extent extent = Extent::kNone;
  std::int64_t workspace_offset_bytes = 0;  // kWorkspace
};

struct Step {
  StepKind kind;
  Value a, b, result;
  float scale = 1;
  float shift = 0;
};

struct Chain {
  std::vector<Step> steps;
  std::int64_t workspace_bytes = 0;
};

// The shape is one that WhyNot has no objection to.
Chain UnfusedChain(const FusedShape& shape);

std::int64_t ElementsOf(const FusedShape& shape, Extent extent);  // saturates
std::int64_t BytesOf(const FusedShape& shape, Extent extent);     // saturates

// The memory of a value. Null for kNone.
void* Address(const FusedParams& params, const Value& value);

// Arithmetic operations of one step for each of its elements; a root, an exponential and the like count as one.
int FlopsPerElement(StepKind kind);

}  // namespace ridgeline::kernels::fused
