// Which tensors and options each operation has: one row a operation, for whoever checks requests, allocates and documents.
#pragma once

#include <string>

#include "kernels/fused/fused.h"

namespace ridgeline::kernels::fused {

enum class Use : std::uint8_t { kNone, kOptional, kRequired };

struct OpInfo {
  Op op;
  const char* name;  // as in the contract's messages, e.g. "layer_norm"
  Use input = Use::kRequired;
  Use other = Use::kNone;
  const char* other_name = "";  // what `other` is called, e.g. "residual"
  Use weight = Use::kNone;
  Use bias = Use::kNone;
  Use positions = Use::kNone;
  Use residual_output = Use::kNone;
  Use mask_output = Use::kNone;
  bool has_epsilon = false;
  bool has_gelu_form = false;
  bool has_dropout = false;
  bool has_rope = false;
  bool appends = false;       // to a KV cache
  bool reduces_rows = false;  // needs statistics of whole rows; else element by element
};

const OpInfo& InfoOf(Op op);

inline const char* Name(Op op) { return InfoOf(op).name; }

// Empty if the CPU and CUDA devices can compute the problem, else why not, naming the member and what is allowed, e.g.
// "row_elems is 300000; fused operations support 1 to 262144". Pointers are not looked at.
std::string WhyNot(const FusedShape& shape);

}  // namespace ridgeline::kernels::fused
