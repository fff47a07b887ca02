// Dropout's bits for code compiled once per SIMD target (hence no ordinary include guard): as many Philox counters side by side
// as a vector has 64-bit lanes.
#if defined(RIDGELINE_KERNELS_FUSED_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_KERNELS_FUSED_DROPOUT_INL_H_
#undef RIDGELINE_KERNELS_FUSED_DROPOUT_INL_H_
#else
#define RIDGELINE_KERNELS_FUSED_DROPOUT_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/common/rounding.h"
#include "kernels/fused/dropout.h"
#include "kernels/fused/spans-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::fused::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using WordTag = hn::ScalableTag<std::uint64_t>;
using WordVec = hn::Vec<WordTag>;

// One word of each counter, in the lower halves of the lanes; what the upper halves have means nothing.
struct CounterWords {
  WordVec word0, word1, word2, word3;
};

HWY_INLINE WordVec Product(WordVec word, std::uint32_t multiplier) {
#if HWY_TARGET == HWY_SCALAR
  const WordTag d;
  return hn::Mul(hn::And(word, hn::Set(d, 0xffffffffu)), hn::Set(d, multiplier));
#else
  const hn::Repartition<std::uint32_t, WordTag> halves;
  return hn::MulEven(hn::BitCast(halves, word), hn::Set(halves, multiplier));
#endif
}

// microbench::PhiloxRound of each.
HWY_INLINE CounterWords PhiloxRound(const CounterWords& counters, const microbench::PhiloxKey& key) {
  const WordTag d;
  const WordVec product0 = Product(counters.word0, microbench::kPhiloxMultiplier0);
  const WordVec product1 = Product(counters.word2, microbench::kPhiloxMultiplier1);
  return {hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), counters.word1), hn::Set(d, key[0])), product1,
          hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), counters.word3), hn::Set(d, key[1])), product0};
}

// The bits of some elements in a row, 16 each.
class DropoutBits {
 public:
  static constexpr std::int64_t kMostElems = 256;

  // Draws those of elements [position, position + count), count up to kMostElems.
  HWY_INLINE void Draw(const DropoutRule& rule, std::int64_t position, std::int64_t count) {
    const WordTag d;
    first_ = position % kDropoutBlockElems;
    const auto first_block = static_cast<std::uint64_t>(position / kDropoutBlockElems);
    const auto num_blocks = static_cast<std::size_t>(CeilDivide(first_ + count, kDropoutBlockElems));
    for (std::size_t i = 0; i < num_blocks; i += hn::Lanes(d)) {
      const WordVec block = hn::Iota(d, first_block + i);
      CounterWords words = {block, hn::ShiftRight<32>(block), hn::Set(d, rule.offset_low), hn::Set(d, rule.offset_high)};
      for (const microbench::PhiloxKey& key : rule.keys) words = PhiloxRound(words, key);
      hn::StoreInterleaved2(Joined(words.word0, words.word1), Joined(words.word2, words.word3), d,
                            reinterpret_cast<std::uint64_t*>(bits_ + i * kDropoutBlockElems));
    }
  }

  // Which elements of a vector of float32 are kept, from the i-th that was drawn.
  HWY_INLINE hn::Mask<FloatTag> Keeps(const DropoutRule& rule, std::int64_t i) const {
    const hn::Rebind<std::int32_t, FloatTag> integers;
    const hn::Rebind<std::uint16_t, FloatTag> drawn;
    const auto bits = hn::PromoteTo(integers, hn::LoadU(drawn, bits_ + first_ + i));
    return hn::RebindMask(kTag, hn::Gt(bits, hn::Set(integers, static_cast<std::int32_t>(rule.threshold) - 1)));
  }

  HWY_INLINE void StoreMask(const DropoutRule& rule, std::int64_t count, std::uint8_t* mask) const {
    for (std::int64_t i = 0; i < count; ++i) mask[i] = rule.Keeps(bits_[first_ + i]);
  }

 private:
  static HWY_INLINE WordVec Joined(WordVec lower, WordVec upper) {
    return hn::Or(hn::And(lower, hn::Set(WordTag(), 0xffffffffu)), hn::ShiftLeft<32>(upper));
  }

  // A block more than kMostElems fill, where the first begins before them, and what the last vector has too much.
  static constexpr std::size_t kMostBlocks = kMostElems / kDropoutBlockElems + 1 + hn::MaxLanes(WordTag());

  HWY_ALIGN std::uint16_t bits_[kMostBlocks * kDropoutBlockElems];
  std::int64_t first_ = 0;
};

}  // namespace ridgeline::kernels::fused::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RIDGELINE_KERNELS_FUSED_DROPOUT_INL_H_
