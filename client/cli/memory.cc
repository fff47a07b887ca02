// `ridgeline memory`
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "client/cli/commands.h"
#include "client/cli/memory_bar.h"
#include "client/cli/segment_picture.h"

ABSL_FLAG(bool, empty_cache, false, "First return cached, unused memory to the operating system or driver.");
ABSL_FLAG(bool, reset_peaks, false, "First set the peaks to the present values.");

namespace ridgeline::cli {
namespace {

Value Bytes(std::int64_t bytes) { return {bytes, Unit::kBytes}; }

Section BytesSection(const v1::MemoryStats& stats) {
  return {"Bytes",
          {{"allocated_bytes", "allocated", Bytes(stats.allocated_bytes())},
           {"requested_bytes", "requested", Bytes(stats.requested_bytes())},
           {"active_bytes", "active", Bytes(stats.active_bytes())},
           {"reserved_bytes", "reserved", Bytes(stats.reserved_bytes())},
           {"limit_bytes", "limit", Bytes(stats.limit_bytes())},
           {"peak_allocated_bytes", "peak allocated", Bytes(stats.peak_allocated_bytes())},
           {"peak_reserved_bytes", "peak reserved", Bytes(stats.peak_reserved_bytes())},
           {"largest_free_block_bytes", "largest free block", Bytes(stats.largest_free_block_bytes())},
           {"promised_bytes", "promised to requests", Bytes(stats.promised_bytes())},
           {"inactive_split_bytes", "free in split segments", Bytes(stats.inactive_split_bytes())},
           {"fragmentation", "fragmentation", {stats.fragmentation(), Unit::kFraction}}}};
}

Section CountSection(const v1::MemoryStats& stats) {
  Value out_of_memory(stats.out_of_memory_count());
  if (stats.out_of_memory_count() > 0) out_of_memory.tone = Tone::kBad;
  return {"Counts",
          {{"allocation_count", "live allocations", stats.allocation_count()},
           {"total_allocation_count", "allocations since start", stats.total_allocation_count()},
           {"segment_count", "segments", stats.segment_count()},
           {"retries", "retries", stats.retries()},
           {"out_of_memory_count", "out of memory", std::move(out_of_memory)}}};
}

Rows PoolRows(const v1::MemoryStats& stats) {
  Rows rows{.key = "pools",
            .columns = {{"pool", "pool"},
                        {"allocated_bytes", "allocated"},
                        {"active_bytes", "active"},
                        {"inactive_split_bytes", "inactive split"},
                        {"reserved_bytes", "reserved"},
                        {"peak_allocated_bytes", "peak allocated"},
                        {"peak_reserved_bytes", "peak reserved"},
                        {"allocated_total_bytes", "allocated in all"},
                        {"freed_total_bytes", "freed in all"}},
            .values = {}};
  for (const auto& [name, pool] : {std::pair("small", &stats.small_pool()), std::pair("large", &stats.large_pool())}) {
    rows.values.push_back({name, Bytes(pool->allocated_bytes().current()), Bytes(pool->active_bytes().current()),
                           Bytes(pool->inactive_split_bytes().current()), Bytes(pool->reserved_bytes().current()),
                           Bytes(pool->allocated_bytes().peak()), Bytes(pool->reserved_bytes().peak()),
                           Bytes(pool->allocated_bytes().allocated()), Bytes(pool->allocated_bytes().freed())});
  }
  return rows;
}

// Lines under the bar.
absl::Status AddSegments(const client::Client& client, std::vector<std::string>& picture) {
  v1::GetMemorySnapshotRequest request;
  request.set_max_events(0);
  const absl::StatusOr<v1::MemorySnapshot> snapshot = client.GetMemorySnapshot(request);
  if (!snapshot.ok()) return snapshot.status();
  for (std::string& line : SegmentPicture(*snapshot)) picture.push_back(std::move(line));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Result> RunMemory(const client::Client& client) {
  Result result;
  if (absl::GetFlag(FLAGS_empty_cache)) {
    const absl::StatusOr<v1::EmptyMemoryCacheResponse> emptied = client.EmptyMemoryCache();
    if (!emptied.ok()) return emptied.status();
    result.document.sections.push_back({"Returned", {{"released_bytes", "released", Bytes(emptied->released_bytes())}}});
  }
  if (absl::GetFlag(FLAGS_reset_peaks)) {
    absl::Status status = client.ResetPeakMemoryStats();
    if (!status.ok()) return status;
  }
  const absl::StatusOr<v1::MemoryStats> stats = client.GetMemoryStats();
  if (!stats.ok()) return stats.status();
  result.document.picture = MemoryBar(*stats);
  absl::Status drawn = AddSegments(client, result.document.picture);
  if (!drawn.ok()) return drawn;
  result.document.sections.push_back(BytesSection(*stats));
  result.document.sections.push_back(CountSection(*stats));
  result.document.rows = PoolRows(*stats);
  return result;
}

}  // namespace ridgeline::cli
