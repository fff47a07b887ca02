#include "server/api/snapshot_writer.h"

#include <cstdint>
#include <string_view>

namespace ridgeline::api {
namespace {

using device::BlockUse;
using device::MemoryAction;
using device::MemoryEvent;
using device::MemoryOwner;
using device::MemorySnapshot;
using device::SegmentSnapshot;

// Segments are no stream's: lanes share them.
constexpr std::int64_t kNoStream = 0;

std::int64_t AddressOf(const char* data) { return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data)); }

void Entry(TreeWriter& writer, std::string_view key, std::int64_t value) {
  writer.Key(key);
  writer.Integer(value);
}

void Entry(TreeWriter& writer, std::string_view key, std::string_view text) {
  writer.Key(key);
  writer.Text(text);
}

void WriteFrames(const MemoryOwner* owner, TreeWriter& writer) {
  writer.Key("frames");
  writer.BeginList();
  if (owner != nullptr) {
    writer.BeginDict();
    Entry(writer, "name", owner->request_id.empty() ? "no request" : owner->request_id);
    Entry(writer, "filename", owner->operation);
    Entry(writer, "line", 0);
    writer.EndDict();
  }
  writer.EndList();
}

std::string_view StateName(BlockUse use) {
  switch (use) {
    case BlockUse::kAllocated:
      return "active_allocated";
    case BlockUse::kAwaitingFree:
      return "active_pending_free";
    case BlockUse::kFree:
      return "inactive";
  }
  return "inactive";
}

void WriteBlocks(const SegmentSnapshot& segment, TreeWriter& writer) {
  writer.Key("blocks");
  writer.BeginList();
  const char* data = segment.data;
  for (const SegmentSnapshot::Block& block : segment.blocks) {
    writer.BeginDict();
    Entry(writer, "address", AddressOf(data));
    Entry(writer, "size", block.size_bytes);
    Entry(writer, "requested_size", block.requested_bytes);
    Entry(writer, "state", StateName(block.use));
    WriteFrames(block.owner.get(), writer);
    writer.EndDict();
    data += block.size_bytes;
  }
  writer.EndList();
}

void WriteSegment(const SegmentSnapshot& segment, TreeWriter& writer) {
  std::int64_t allocated_bytes = 0;
  std::int64_t active_bytes = 0;
  std::int64_t requested_bytes = 0;
  for (const SegmentSnapshot::Block& block : segment.blocks) {
    if (block.use != BlockUse::kFree) active_bytes += block.size_bytes;
    if (block.use == BlockUse::kAllocated) allocated_bytes += block.size_bytes;
    requested_bytes += block.requested_bytes;
  }
  writer.BeginDict();
  Entry(writer, "device", 0);
  Entry(writer, "address", AddressOf(segment.data));
  Entry(writer, "total_size", segment.size_bytes);
  Entry(writer, "allocated_size", allocated_bytes);
  Entry(writer, "active_size", active_bytes);
  Entry(writer, "requested_size", requested_bytes);
  Entry(writer, "stream", kNoStream);
  Entry(writer, "segment_type", segment.small ? "small" : "large");
  writer.Key("is_expandable");
  writer.Truth(segment.grows);
  writer.Key("segment_pool_id");
  writer.BeginList();
  writer.Integer(0);
  writer.Integer(0);
  writer.EndList();
  WriteFrames(nullptr, writer);
  WriteBlocks(segment, writer);
  writer.EndDict();
}

std::string_view ActionName(const MemoryEvent& event) {
  switch (event.action) {
    case MemoryAction::kAllocate:
      return "alloc";
    case MemoryAction::kFree:
    case MemoryAction::kFreeRequested:
      return "free_requested";
    case MemoryAction::kFreeCompleted:
      return "free_completed";
    case MemoryAction::kSegmentMapped:
      return event.grows ? "segment_map" : "segment_alloc";
    case MemoryAction::kSegmentUnmapped:
      return event.grows ? "segment_unmap" : "segment_free";
    case MemoryAction::kOutOfMemory:
      return "oom";
  }
  return "snapshot";
}

void WriteEvent(const MemoryEvent& event, std::string_view action, TreeWriter& writer) {
  const bool is_segments = event.action == MemoryAction::kSegmentMapped || event.action == MemoryAction::kSegmentUnmapped;
  writer.BeginDict();
  Entry(writer, "action", action);
  if (event.action == MemoryAction::kOutOfMemory) {
    Entry(writer, "device_free", event.available_bytes);
  } else {
    Entry(writer, "addr", AddressOf(event.data));
  }
  Entry(writer, "size", event.size_bytes);
  Entry(writer, "stream", is_segments ? kNoStream : event.lane);
  Entry(writer, "time_us", event.unix_nanoseconds / 1000);
  WriteFrames(event.owner.get(), writer);
  writer.EndDict();
}

void WriteSettings(const MemorySnapshot& snapshot, TreeWriter& writer) {
  writer.Key("allocator_settings");
  writer.BeginDict();
  Entry(writer, "PYTORCH_CUDA_ALLOC_CONF", "");
  Entry(writer, "max_split_size", snapshot.max_split_bytes);
  writer.Key("expandable_segments");
  writer.Truth(snapshot.grows);
  Entry(writer, "roundup_power2_divisions", snapshot.rounding_divisions);
  Entry(writer, "limit_bytes", snapshot.limit_bytes);
  writer.EndDict();
}

}  // namespace

void WriteSnapshot(const MemorySnapshot& snapshot, TreeWriter& writer) {
  writer.BeginDict();
  writer.Key("segments");
  writer.BeginList();
  for (const SegmentSnapshot& segment : snapshot.segments) WriteSegment(segment, writer);
  writer.EndList();
  writer.Key("device_traces");
  writer.BeginList();
  writer.BeginList();
  for (const MemoryEvent& event : snapshot.history) {
    WriteEvent(event, ActionName(event), writer);
    if (event.action == MemoryAction::kFree) WriteEvent(event, "free_completed", writer);
  }
  writer.EndList();
  writer.EndList();
  WriteSettings(snapshot, writer);
  writer.Key("external_annotations");
  writer.BeginList();
  writer.EndList();
  writer.EndDict();
}

}  // namespace ridgeline::api
