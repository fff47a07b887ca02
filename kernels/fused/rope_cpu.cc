// Rotary embedding, fused with the append to a paged KV cache: a task takes whole tokens.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numbers>

#include "kernels/common/data_type.h"
#include "kernels/common/rounding.h"
#include "kernels/fused/fused_cpu.h"
#include "kernels/fused/rope_angle.h"
#include "kernels/fused/token_position.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused/rope_cpu.cc"  // this file, once for each SIMD target
#include "hwy/foreach_target.h"                         // must come before highway.h

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/fused/spans-inl.h"

#ifndef RIDGELINE_KERNELS_FUSED_ROPE_CPU_ONCE_
#define RIDGELINE_KERNELS_FUSED_ROPE_CPU_ONCE_
namespace ridgeline::kernels::fused {

// Of one token, a pair each; a whole vector may be written past the last.
using PairTable = std::array<float, kMaxHeadDim / 2 + 64>;

struct PairRates {
  std::array<double, kMaxHeadDim / 2> revolutions_per_token;
};

}  // namespace ridgeline::kernels::fused
#endif  // RIDGELINE_KERNELS_FUSED_ROPE_CPU_ONCE_

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::fused::HWY_NAMESPACE {
namespace {

struct Turns {
  PairTable sine, cosine;
};

void FillTurns(const PairRates& rates, std::int64_t pairs, std::int64_t position, Turns& turns) {
  PairTable revolutions;
  for (std::int64_t p = 0; p < pairs; ++p) {
    const double exact = static_cast<double>(position) * rates.revolutions_per_token[p];
    revolutions[p] = static_cast<float>(exact - std::rint(exact));
  }
  const FloatVec full_turn = hn::Set(kTag, static_cast<float>(2 * std::numbers::pi));
  ForEachVector(pairs, [&](std::int64_t p, std::size_t count) HWY_ATTR {
    const FloatVec angle = hn::Mul(LoadUpTo(revolutions.data() + p, count), full_turn);
    hn::StoreU(hn::Sin(kTag, angle), kTag, turns.sine.data() + p);
    hn::StoreU(hn::Cos(kTag, angle), kTag, turns.cosine.data() + p);
  });
}

template <typename T>
void TurnHalfSplit(const T* head, std::int64_t pairs, const Turns& turns, T* turned) {
  ForEachVector(pairs, [&](std::int64_t p, std::size_t count) HWY_ATTR {
    const FloatVec first = LoadUpTo(head + p, count), second = LoadUpTo(head + pairs + p, count);
    const FloatVec sine = hn::LoadU(kTag, turns.sine.data() + p), cosine = hn::LoadU(kTag, turns.cosine.data() + p);
    StoreUpTo(hn::MulSub(first, cosine, hn::Mul(second, sine)), turned + p, count);
    StoreUpTo(hn::MulAdd(first, sine, hn::Mul(second, cosine)), turned + pairs + p, count);
  });
}

// A head at a time through float32: interleaved pairs come apart in a register, not in every element type.
template <typename T>
void TurnInterleaved(const T* head, std::int64_t pairs, const Turns& turns, T* turned) {
  std::array<float, kMaxHeadDim + 128> elements;
  ForEachVector(2 * pairs, [&](std::int64_t i, std::size_t count)
                               HWY_ATTR { hn::StoreU(LoadUpTo(head + i, count), kTag, elements.data() + i); });
  ForEachVector(pairs, [&](std::int64_t p, std::size_t /*count*/) HWY_ATTR {
    FloatVec first, second;
    hn::LoadInterleaved2(kTag, elements.data() + 2 * p, first, second);
    const FloatVec sine = hn::LoadU(kTag, turns.sine.data() + p), cosine = hn::LoadU(kTag, turns.cosine.data() + p);
    hn::StoreInterleaved2(hn::MulSub(first, cosine, hn::Mul(second, sine)), hn::MulAdd(first, sine, hn::Mul(second, cosine)),
                          kTag, elements.data() + 2 * p);
  });
  ForEachVector(2 * pairs, [&](std::int64_t i, std::size_t count)
                               HWY_ATTR { StoreUpTo(LoadUpTo(elements.data() + i, count), turned + i, count); });
}

template <typename T>
void TurnHeads(const RopeOptions& rope, const T* from, std::int64_t elements, const Turns& turns, T* to) {
  for (std::int64_t begin = 0; begin < elements; begin += rope.head_dim) {
    if (rope.layout == RopeLayout::kInterleaved) {
      TurnInterleaved(from + begin, rope.rotary_dim / 2, turns, to + begin);
    } else {
      TurnHalfSplit(from + begin, rope.rotary_dim / 2, turns, to + begin);
    }
    std::copy(from + begin + rope.rotary_dim, from + begin + rope.head_dim, to + begin + rope.rotary_dim);
  }
}

template <typename T>
void RunTyped(const FusedParams& params, const PairRates& rates, std::int64_t row_begin, std::int64_t row_end) {
  const FusedShape& shape = params.shape;
  Turns turns;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    FillTurns(rates, shape.rope.rotary_dim / 2, PositionOnCpu(params, row), turns);
    if (shape.has_input) {
      const std::int64_t begin = row * shape.row_elems;
      TurnHeads(shape.rope, static_cast<const T*>(params.input) + begin, shape.row_elems, turns,
                static_cast<T*>(params.output) + begin);
    }
    if (shape.op == Op::kRope) continue;
    const kv_cache::PagedRows& paged = params.append.to;
    const kv_cache::TokenSpan* const span = FindSpanOnCpu(paged, row);
    if (span == nullptr) continue;
    const std::int64_t token = span->token_begin + (row - span->row_begin);
    const std::int64_t page = paged.block_table[span->table_begin + token / paged.pages.page_tokens];
    const std::int64_t paged_row = page * paged.pages.page_tokens + token % paged.pages.page_tokens;
    TurnHeads(shape.rope, static_cast<const T*>(params.append.key) + row * shape.key_elems, shape.key_elems, turns,
              static_cast<T*>(paged.pages.key) + paged_row * shape.key_elems);
    std::memcpy(static_cast<T*>(paged.pages.value) + paged_row * shape.value_elems,
                static_cast<const T*>(params.append.value) + row * shape.value_elems, shape.value_elems * sizeof(T));
  }
}

}  // namespace

void RunRope(const FusedParams& params, const PairRates& rates, std::int64_t row_begin, std::int64_t row_end) {
  switch (params.shape.data_type) {
    case DataType::kFloat16:
      return RunTyped<Float16>(params, rates, row_begin, row_end);
    case DataType::kBFloat16:
      return RunTyped<BFloat16>(params, rates, row_begin, row_end);
    default:
      return RunTyped<float>(params, rates, row_begin, row_end);
  }
}

}  // namespace ridgeline::kernels::fused::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels::fused {

HWY_EXPORT(RunRope);

void RunRopeOnCpu(const FusedParams& params, Executor& executor) {
  const FusedShape& shape = params.shape;
  PairRates rates;
  const RopeRates of = RatesOf(shape.rope);
  for (int p = 0; p < static_cast<int>(shape.rope.rotary_dim / 2); ++p) {
    rates.revolutions_per_token[p] = of.RevolutionsPerToken(p);
  }
  const std::int64_t token_elems = (shape.has_input ? shape.row_elems : 0) + shape.key_elems + shape.value_elems;
  const std::int64_t task_rows = std::max<std::int64_t>(1, kTaskElems / token_elems);
  executor.ParallelFor(CeilDivide(shape.num_rows, task_rows), [&](std::int64_t task_idx, int /*slot*/) {
    const std::int64_t begin = task_idx * task_rows;
    HWY_DYNAMIC_DISPATCH(RunRope)(params, rates, begin, std::min(shape.num_rows, begin + task_rows));
  });
}

}  // namespace ridgeline::kernels::fused
#endif  // HWY_ONCE
