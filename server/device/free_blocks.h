// Blocks that wait to be used again, by size.
//
//   bins_  512 │ 1024 │ ... │ 8 bins between one power of two and the next │ ...
//           │                 │
//           ▼                 ▼
//         block ◄─► block   block            the latest first; a bit for each bin says if there is any
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "server/device/memory_block.h"

namespace ridgeline::device {

class FreeBlocks {
 public:
  static constexpr std::int64_t kUnitBytes = 512;  // sizes are multiples of it

  void Insert(Block& block) {
    const std::size_t bin = BinOf(block.size_bytes);
    Block*& first = bins_[bin];
    block.free_previous = nullptr;
    block.free_next = first;
    if (first != nullptr) first->free_previous = &block;
    first = &block;
    used_[bin / kWordBits] |= std::uint64_t{1} << (bin % kWordBits);
  }

  // `block` has the size with which it was inserted.
  void Erase(Block& block) {
    if (block.free_next != nullptr) block.free_next->free_previous = block.free_previous;
    if (block.free_previous != nullptr) {
      block.free_previous->free_next = block.free_next;
      return;
    }
    const std::size_t bin = BinOf(block.size_bytes);
    bins_[bin] = block.free_next;
    if (block.free_next == nullptr) used_[bin / kWordBits] &= ~(std::uint64_t{1} << (bin % kWordBits));
  }

  // The smallest that holds `size_bytes`, as far as a look at kMostLooks of a bin tells; null: none does.
  Block* FindFit(std::int64_t size_bytes) const {
    const std::size_t first_bin = BinOf(size_bytes);
    if (Block* const block = SmallestOf(first_bin, size_bytes)) return block;
    const std::size_t bin = NextUsed(first_bin + 1);
    return bin < kNumBins ? SmallestOf(bin, size_bytes) : nullptr;
  }

  std::int64_t largest_bytes() const {
    std::int64_t largest_bytes = 0;
    VisitLargestBinFirst([&largest_bytes](const Block& block) {
      const bool is_same_bin = largest_bytes == 0 || BinOf(block.size_bytes) == BinOf(largest_bytes);
      if (is_same_bin && block.size_bytes > largest_bytes) largest_bytes = block.size_bytes;
      return is_same_bin;
    });
    return largest_bytes;
  }

  // Calls `visit` with each block, those of larger bins first, while it returns true. It may not change the set.
  template <typename Visit>
  void VisitLargestBinFirst(Visit&& visit) const {
    for (std::size_t word = used_.size(); word-- > 0;) {
      for (std::uint64_t bits = used_[word]; bits != 0;) {
        const auto bit = static_cast<std::size_t>(std::bit_width(bits)) - 1;
        bits &= ~(std::uint64_t{1} << bit);
        for (Block* block = bins_[word * kWordBits + bit]; block != nullptr; block = block->free_next) {
          if (!visit(*block)) return;
        }
      }
    }
  }

 private:
  static constexpr std::size_t kStepBits = 3;  // 8 bins between powers of two
  static constexpr std::size_t kSteps = std::size_t{1} << kStepBits;
  static constexpr std::size_t kNumBins = (54 - kStepBits + 1) * kSteps;  // 2^63 bytes are 2^54 units
  static constexpr std::size_t kWordBits = 64;
  static constexpr int kMostLooks = 64;

  static std::size_t BinOf(std::int64_t size_bytes) {
    const auto units = static_cast<std::uint64_t>(size_bytes / kUnitBytes);
    if (units < kSteps) return units;
    const auto power = static_cast<std::size_t>(std::bit_width(units)) - 1;
    return (power - kStepBits + 1) * kSteps + ((units >> (power - kStepBits)) & (kSteps - 1));
  }

  std::size_t NextUsed(std::size_t bin) const {
    for (std::size_t word = bin / kWordBits; word < used_.size(); ++word) {
      std::uint64_t bits = used_[word];
      if (word == bin / kWordBits) bits &= ~std::uint64_t{0} << (bin % kWordBits);
      if (bits != 0) return word * kWordBits + static_cast<std::size_t>(std::countr_zero(bits));
    }
    return kNumBins;
  }

  Block* SmallestOf(std::size_t bin, std::int64_t size_bytes) const {
    Block* smallest = nullptr;
    int looks = 0;
    for (Block* block = bins_[bin]; block != nullptr && looks < kMostLooks; block = block->free_next) {
      if (block->size_bytes < size_bytes) continue;
      if (block->size_bytes == size_bytes) return block;
      if (smallest == nullptr || block->size_bytes < smallest->size_bytes) smallest = block;
      ++looks;
    }
    return smallest;
  }

  std::array<Block*, kNumBins> bins_ = {};
  std::array<std::uint64_t, (kNumBins + kWordBits - 1) / kWordBits> used_ = {};
};

}  // namespace ridgeline::device
