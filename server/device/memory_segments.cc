#include "server/device/memory_segments.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/base/check.h"

namespace ridgeline::device {
namespace {

bool IsMapped(const Block* block) { return block != nullptr && block->IsMapped(); }

// By how much the number of contiguous ranges changes when memory between these neighbours is mapped.
std::int64_t RangesAdded(const Block* previous, const Block* next) {
  return 1 - static_cast<std::int64_t>(IsMapped(previous)) - static_cast<std::int64_t>(IsMapped(next));
}

bool IsUnmapped(const Block* block) { return block != nullptr && block->state == BlockState::kUnmapped; }

}  // namespace

MemorySegments::MemorySegments(MemorySource& source, std::int64_t address_bytes)
    : source_(source), address_bytes_(source.growing() != nullptr ? address_bytes : 0) {}

MemorySegments::~MemorySegments() {
  for (auto& [data, segment] : segments_) {
    if (!segment.grows) {
      source_.Unmap(data, segment.size_bytes);
      continue;
    }
    for (const auto& [chunk, size_bytes] : segment.chunks) source_.growing()->UnmapChunk(chunk, size_bytes);
    source_.growing()->ReleaseAddresses(data, segment.size_bytes);
  }
}

MemorySegment* MemorySegments::Growing(bool small) {
  MemorySegment*& segment = growing_[small ? 1 : 0];
  if (segment != nullptr || address_bytes_ == 0 || !has_addresses_) return segment;
  const absl::StatusOr<void*> addresses = source_.growing()->ReserveAddresses(address_bytes_);
  has_addresses_ = addresses.ok();
  if (addresses.ok()) segment = &AddSegment(*addresses, address_bytes_, small, /*grows=*/true);
  return segment;
}

absl::StatusOr<Block*> MemorySegments::MapFixed(bool small, std::int64_t size_bytes) {
  const absl::StatusOr<void*> data = source_.Map(size_bytes);
  if (!data.ok()) return data.status();
  MemorySegment& segment = AddSegment(*data, size_bytes, small, /*grows=*/false);
  segment.mapped_bytes = size_bytes;
  segment.first->state = BlockState::kFree;
  return segment.first;
}

void MemorySegments::UnmapFixed(Block& block) {
  RIDGELINE_CHECK(block.state == BlockState::kFree && block.size_bytes == block.segment->size_bytes);
  char* const data = block.data;
  source_.Unmap(data, block.size_bytes);
  DeleteBlock(block);
  segments_.erase(data);
}

absl::StatusOr<Block*> MemorySegments::MapPart(Block& unmapped, char* begin, std::int64_t size_bytes, std::int64_t chunk_bytes,
                                               Change& change) {
  MemorySegment& segment = *unmapped.segment;
  for (std::int64_t at = 0; at < size_bytes; at += chunk_bytes) {
    const std::int64_t bytes = std::min(chunk_bytes, size_bytes - at);
    if (absl::Status status = source_.growing()->MapChunk(begin + at, bytes); !status.ok()) {
      for (auto chunk = segment.chunks.lower_bound(begin); chunk != segment.chunks.end() && chunk->first < begin + at;) {
        source_.growing()->UnmapChunk(chunk->first, chunk->second);
        chunk = segment.chunks.erase(chunk);
      }
      return status;
    }
    segment.chunks.emplace(begin + at, bytes);
  }
  unmapped.state = BlockState::kUnmapped;
  Block& mapped = begin == unmapped.data ? unmapped : Split(unmapped, begin - unmapped.data);
  if (mapped.size_bytes > size_bytes) Split(mapped, size_bytes);
  mapped.state = BlockState::kFree;
  segment.mapped_bytes += size_bytes;
  change.bytes += size_bytes;
  change.ranges += RangesAdded(mapped.previous, mapped.next);
  return &mapped;
}

MemorySegments::Remains MemorySegments::UnmapChunks(Block& block, std::int64_t wanted_bytes) {
  MemorySegment& segment = *block.segment;
  Remains remains;
  remains.front = &block;
  auto chunk = segment.chunks.lower_bound(block.data);
  char* const begin = chunk == segment.chunks.end() ? block.end() : chunk->first;
  char* end = begin;
  while (chunk != segment.chunks.end() && chunk->first + chunk->second <= block.end() && end - begin < wanted_bytes) {
    end = chunk->first + chunk->second;
    source_.growing()->UnmapChunk(chunk->first, chunk->second);
    chunk = segment.chunks.erase(chunk);
  }
  if (begin >= end) return remains;
  Block* middle = begin == block.data ? &block : &Split(block, begin - block.data);
  if (middle == &block) remains.front = nullptr;
  if (end < middle->end()) remains.back = &Split(*middle, end - begin);
  middle->state = BlockState::kUnmapped;
  segment.mapped_bytes -= end - begin;
  remains.data = begin;
  remains.change = {.bytes = begin - end, .ranges = -RangesAdded(middle->previous, middle->next)};
  JoinUnmapped(*middle);
  return remains;
}

void MemorySegments::JoinUnmapped(Block& block) {
  if (IsUnmapped(block.next)) JoinNext(block);
  if (IsUnmapped(block.previous)) JoinNext(*block.previous);
}

Block& MemorySegments::Split(Block& block, std::int64_t size_bytes) {
  Block& rest = NewBlock();
  rest = block;
  rest.data = block.data + size_bytes;
  rest.size_bytes = block.size_bytes - size_bytes;
  rest.previous = &block;
  if (rest.next != nullptr) rest.next->previous = &rest;
  block.next = &rest;
  block.size_bytes = size_bytes;
  return rest;
}

void MemorySegments::JoinNext(Block& block) {
  Block& next = *block.next;
  block.size_bytes += next.size_bytes;
  block.next = next.next;
  if (block.next != nullptr) block.next->previous = &block;
  DeleteBlock(next);
}

Block& MemorySegments::NewBlock() {
  if (unused_.empty()) return storage_.emplace_back();
  Block& block = *unused_.back();
  unused_.pop_back();
  block = Block();
  return block;
}

void MemorySegments::DeleteBlock(Block& block) { unused_.push_back(&block); }

MemorySegment& MemorySegments::AddSegment(void* data, std::int64_t size_bytes, bool small, bool grows) {
  char* const begin = static_cast<char*>(data);
  Block& block = NewBlock();
  MemorySegment& segment = segments_[begin];
  segment.data = begin;
  segment.size_bytes = size_bytes;
  segment.small = small;
  segment.grows = grows;
  segment.first = &block;
  block.data = begin;
  block.size_bytes = size_bytes;
  block.segment = &segment;
  return segment;
}

}  // namespace ridgeline::device
