// A plain model of a caching allocator: it knows who holds what and which freed memory may still be in use, and checks the
// allocator against that after every step.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "server/device/buffer.h"
#include "server/device/caching_allocator.h"
#include "server/device/lane_progress.h"

namespace ridgeline::device {

class AllocatorModel {
 public:
  static constexpr int kLanes = 3;
  using Lanes = std::array<LaneProgress, kLanes>;

  // Says how much the allocator's source has given out, and whether there is memory behind a range.
  struct Truth {
    std::function<std::int64_t()> mapped_bytes;
    std::function<bool(const char* data, std::int64_t size_bytes)> is_mapped;
  };

  // `allocator` was made over `lanes`. `splits_exactly`: a block is its request's size, rounded to 512 bytes.
  AllocatorModel(CachingAllocator& allocator, Lanes& lanes, Truth truth, bool splits_exactly)
      : allocator_(allocator), lanes_(lanes), truth_(std::move(truth)), splits_exactly_(splits_exactly) {}

  // True if there was memory.
  bool Allocate(int lane, std::int64_t size_bytes);
  void FreeNth(std::int64_t n);
  void QueueWork(int lane) { ++lanes_[lane].queued; }
  void CompleteWork(int lane) { lanes_[lane].completed = lanes_[lane].queued.load(); }
  void Reserve(int lane, std::int64_t size_bytes);
  void EndReservation(int lane) { allocator_.EndReservation(lane); }

  // One step of a kind that `random` draws.
  void TakeRandomStep(std::mt19937_64& random, std::int64_t most_bytes);
  // Everything that is promised to hold, holds.
  void Check();
  // Frees all, completes all, and expects that what is left is whole, then that all goes back.
  void CheckEnd();

  std::int64_t num_live() const { return static_cast<std::int64_t>(live_.size()); }
  std::int64_t peak_allocated_bytes() const { return peak_allocated_bytes_; }
  std::int64_t num_refusals() const { return num_refusals_; }

 private:
  struct Live {
    Buffer buffer;
    int lane;
  };
  // Freed memory that work queued before may use.
  struct Use {
    const char* begin;
    std::int64_t size_bytes;
    int lane;
    std::int64_t num_items;
  };

  bool IsInUse(const Use& use) const { return !lanes_[use.lane].HasCompleted(use.num_items); }
  void CheckTiling(const MemorySnapshot& snapshot) const;
  void CheckStats(const MemorySnapshot& snapshot);

  CachingAllocator& allocator_;
  Lanes& lanes_;
  const Truth truth_;
  const bool splits_exactly_;
  std::map<const char*, Live> live_;  // by address
  std::vector<Use> uses_;
  std::int64_t requested_bytes_ = 0;
  std::int64_t peak_requested_bytes_ = 0;
  std::int64_t total_requested_bytes_ = 0;
  std::int64_t peak_allocated_bytes_ = 0;
  std::int64_t num_allocations_ = 0;
  std::int64_t num_refusals_ = 0;
};

}  // namespace ridgeline::device
