// What every fused operation computes, as plain structs for host and device code.
//
// Legend: R rows, N elements of a row; x input, o other, w weight, b bias; a row's statistics are over its N elements.
// Arithmetic is in float32 for every type and rounded to the type once, where a result is stored.
//
//   kLayerNorm             y = (x - mean) / sqrt(variance + epsilon) * w + b          variance: mean of (x - mean)^2
//   kRmsNorm               y = x / sqrt(mean of x^2 + epsilon) * w
//   kSoftmax               y = exp(x - max) / sum of exp(x - max)
//   kGelu                  y = gelu(x), see GeluForm
//   kBiasGelu              y = gelu(x + b)
//   kGeluAdd               y = gelu(x) + o
//   kAddLayerNorm          s = x + o, rounded to the type; y = layer norm of s
//   kAddRmsNorm            s = x + o, rounded to the type; y = RMS norm of s
//   kLayerNormGeluDropout  y = dropout(gelu(layer norm of x)), see dropout.h
//   kSwiglu                y = x / (1 + exp(-x)) * o                                  x: the gate, o: the up projection
//   kRope                  y = x, each head turned by its row's position, see RopeOptions
//   kRopeAppend            the same, and keys turned likewise go to the pages of a KV cache, with their values
//
// NaN and infinities go through as these formulas take them: an infinity in a row of kLayerNorm makes the row NaN, a row of
// kSoftmax whose elements are all -inf is NaN, gelu(-inf) is NaN.
#pragma once

#include <cstdint>

#include "kernels/common/data_type.h"
#include "kernels/kv_cache/kv_cache.h"

namespace ridgeline::kernels::fused {

enum class Op : std::uint8_t {
  kLayerNorm,
  kRmsNorm,
  kSoftmax,
  kGelu,
  kBiasGelu,
  kGeluAdd,
  kAddLayerNorm,
  kAddRmsNorm,
  kLayerNormGeluDropout,
  kSwiglu,
  kRope,
  kRopeAppend,
};
inline constexpr int kNumOps = 12;

// kFused: one kernel, each input read once, each output written once. kUnfused: one kernel an elementary step, with every
// intermediate result in memory, in the tensor's type (statistics of rows in float32), as an eager framework would compute it.
enum class Mode : std::uint8_t { kFused, kUnfused };

constexpr const char* Name(Mode mode) { return mode == Mode::kFused ? "fused" : "unfused"; }

// kErf: x/2 * (1 + erf(x / sqrt(2))). kTanh: x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))).
enum class GeluForm : std::uint8_t { kErf, kTanh };

struct DropoutOptions {
  double probability = 0;    // of an element to be 0, in [0, 1]
  std::uint64_t seed = 0;    // Philox's key
  std::uint64_t offset = 0;  // of the call: the other half of Philox's counter
};

// A head's element pair p of rotary_dim / 2 is turned by the angle position * base^(-2p / rotary_dim). Elements from rotary_dim
// on stay as they are. Interleaved: pair p is elements 2p and 2p + 1; half split: p and p + rotary_dim / 2.
enum class RopeLayout : std::uint8_t { kInterleaved, kHalfSplit };

struct RopeOptions {
  RopeLayout layout = RopeLayout::kHalfSplit;
  std::int64_t head_dim = 0;    // N is a multiple of it: a row is a token, with all its heads
  std::int64_t rotary_dim = 0;  // even, in [2, head_dim]
  double base = 10000;          // > 0
};

// The part of a problem that fixes its cost, its workspace and its schedule. Members that an operation does not have (OpInfo
// says which) are not looked at.
struct FusedShape {
  Op op = Op::kLayerNorm;
  DataType data_type = DataType::kFloat32;  // of every tensor but mask and positions: float32, float16 or bfloat16
  std::int64_t num_rows = 0;                // R, >= 0
  std::int64_t row_elems = 0;               // N, in [1, kMaxRowElems]

  bool has_weight = false;
  bool has_bias = false;
  bool has_mask = false;       // the mask is wanted
  bool has_positions = false;  // else row r has position r; kRopeAppend: the token's index in its sequence
  bool has_input = true;       // kRopeAppend: there are queries

  double epsilon = 1e-5;  // >= 0
  GeluForm gelu_form = GeluForm::kErf;
  DropoutOptions dropout;
  RopeOptions rope;
  std::int64_t key_elems = 0;    // kRopeAppend: of one token's keys, a multiple of head_dim
  std::int64_t value_elems = 0;  // kRopeAppend: of one token's values
};

inline constexpr std::int64_t kMaxRowElems = 262144;
inline constexpr std::int64_t kMaxHeadDim = 1024;

// One launch. All pointers are memory of the device that runs it, aligned to their elements (16 bytes for speed on CUDA
// devices); tensors are dense and don't overlap. Inputs are never written; every output element is. Workspace comes
// uninitialised.
struct FusedParams {
  FusedShape shape;

  const void* input = nullptr;              // [R, N]
  const void* other = nullptr;              // [R, N]
  const void* weight = nullptr;             // [N] or null
  const void* bias = nullptr;               // [N] or null
  const std::int64_t* positions = nullptr;  // [R] or null

  void* output = nullptr;               // [R, N]
  void* residual_output = nullptr;      // [R, N]: s
  std::uint8_t* mask_output = nullptr;  // [R, N] or null: 1 kept, 0 dropped

  // kRopeAppend: num_rows is R, and alignment is as kv_cache.h says. Rows that belong to no token append nothing; their queries
  // are turned by their positions, or by 0.
  kv_cache::AppendParams append = {};

  void* workspace = nullptr;  // WorkspaceBytes, aligned to 256 bytes; null if that is 0
};

}  // namespace ridgeline::kernels::fused
