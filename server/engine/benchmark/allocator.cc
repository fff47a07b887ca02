#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;

constexpr char kName[] = "allocator";
constexpr std::int64_t kPageBytes = 4096;
constexpr std::size_t kAlignment = 512;

// Memory that nobody touches has not been given by the system yet.
void TouchPages(void* memory, std::int64_t size_bytes) {
  auto* const bytes = static_cast<volatile std::byte*>(memory);
  for (std::int64_t at = 0; at < size_bytes; at += kPageBytes) bytes[at] = std::byte{1};
}

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

enum class Source { kSystem, kDeviceMalloc, kStreamOrdered, kCaching };

Source SourceOf(const std::string& name) {
  if (name == "system") return Source::kSystem;
  if (name == "device_malloc") return Source::kDeviceMalloc;
  return name == "stream_ordered" ? Source::kStreamOrdered : Source::kCaching;
}

// One block of memory from any allocator.
struct Block {
  std::unique_ptr<void, FreeMemory> of_system;
  Buffer of_device;
};

absl::StatusOr<Block> AllocateFromSystem(std::int64_t size_bytes) {
  Block block;
  const std::size_t rounded = (static_cast<std::size_t>(size_bytes) + kAlignment - 1) / kAlignment * kAlignment;
  block.of_system.reset(std::aligned_alloc(kAlignment, rounded));
  if (block.of_system == nullptr)
    return absl::ResourceExhaustedError(absl::StrCat("the system refused ", size_bytes, " bytes"));
  TouchPages(block.of_system.get(), size_bytes);
  return block;
}

absl::StatusOr<Block> Allocate(const PointContext& context, Source source, std::int64_t size_bytes) {
  if (source == Source::kSystem) return AllocateFromSystem(size_bytes);
  Block block;
  if (source != Source::kCaching) {
    const auto plain =
        source == Source::kDeviceMalloc ? device::PlainAllocator::kDeviceMalloc : device::PlainAllocator::kStreamOrdered;
    RIDGELINE_ASSIGN_OR_RETURN(block.of_device, context.lane.AllocatePlain(plain, size_bytes));
    return block;
  }
  RIDGELINE_ASSIGN_OR_RETURN(block.of_device, context.lane.Allocate(size_bytes));
  if (context.device.info().type == device::DeviceType::kCpu) TouchPages(block.of_device.data(), size_bytes);
  return block;
}

// Allocations of a server whose requests vary in length: up to kLive of them live at once, each of kEvents replaces one.
constexpr std::size_t kLive = 64;
constexpr int kEvents = 256;

struct TraceEvent {
  std::size_t slot;
  std::int64_t size_bytes;
};

std::vector<TraceEvent> MakeTrace(std::uint64_t seed, std::int64_t median_bytes) {
  std::mt19937_64 random(seed);
  std::vector<TraceEvent> trace;
  for (int i = 0; i < kEvents; ++i) {
    // Within a factor of eight of the median either way, evenly in the logarithm.
    const double exponent = static_cast<double>(random() % 6001) / 1000 - 3;
    trace.push_back({random() % kLive, static_cast<std::int64_t>(static_cast<double>(median_bytes) * std::exp2(exponent))});
  }
  return trace;
}

struct TraceResult {
  double reserved_over_allocated = 1;
};

Subject MakeTraceSubject(const PointContext& context, Source source, std::int64_t median_bytes) {
  const auto result = std::make_shared<TraceResult>();
  Subject subject{.kernel = absl::StrCat(context.values.Word("allocator"), " allocator, trace")};
  subject.run_and_time = [context, source, result, trace = MakeTrace(context.seed, median_bytes)](
                             std::int64_t repetitions) -> absl::StatusOr<absl::Duration> {
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < repetitions; ++i) {
      std::vector<Block> live(kLive);
      for (const TraceEvent& event : trace) {
        live[event.slot] = Block();
        RIDGELINE_ASSIGN_OR_RETURN(live[event.slot], Allocate(context, source, event.size_bytes));
      }
      const device::MemoryStats stats = context.device.memory_stats();
      if (stats.allocated_bytes > 0) {
        result->reserved_over_allocated =
            static_cast<double>(stats.reserved_bytes) / static_cast<double>(stats.allocated_bytes);
      }
    }
    return absl::FromChrono(std::chrono::steady_clock::now() - begin);
  };
  subject.figures = [result, source](double seconds) {
    std::map<std::string, double> figures{{"seconds_per_allocation", seconds / kEvents}};
    if (source == Source::kCaching) figures["reserved_over_allocated"] = result->reserved_over_allocated;
    return figures;
  };
  return subject;
}

Subject MakePairSubject(const PointContext& context, Source source, std::int64_t size_bytes) {
  Subject subject{.kernel = absl::StrCat(context.values.Word("allocator"), " allocator, allocate and free")};
  subject.run_and_time = [context, source, size_bytes](std::int64_t repetitions) -> absl::StatusOr<absl::Duration> {
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < repetitions; ++i) {
      RIDGELINE_RETURN_IF_ERROR(Allocate(context, source, size_bytes).status());
    }
    return absl::FromChrono(std::chrono::steady_clock::now() - begin);
  };
  subject.figures = [](double seconds) { return std::map<std::string, double>{{"seconds_per_allocation", seconds}}; };
  return subject;
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  const Source source = SourceOf(context.values.Word("allocator"));
  const std::int64_t size_bytes = context.values.Integer("size_bytes");
  if (size_bytes > context.device.info().memory_limit_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("a block of ", SizeText(static_cast<double>(size_bytes)),
                                                     " does not fit the device's ",
                                                     SizeText(static_cast<double>(context.device.info().memory_limit_bytes))));
  }
  if (context.values.Word("pattern") == "trace") return MakeTraceSubject(context, source, size_bytes);
  return MakePairSubject(context, source, size_bytes);
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& device) {
  std::int64_t largest = 0;
  for (const Point& point : points) largest = std::max(largest, point.values.Integer("size_bytes"));
  const auto at = [&](const std::string& allocator, const std::string& pattern) {
    return Find(points, [=](const Point& point) {
      return point.values.Word("allocator") == allocator && point.values.Word("pattern") == pattern &&
             point.values.Integer("size_bytes") == largest;
    });
  };
  const bool is_cpu = device.type == device::DeviceType::kCpu;
  const Point* const plain = at(is_cpu ? "system" : "device_malloc", "pairs");
  const Point* const caching = at("caching", "pairs");
  if (plain == nullptr || caching == nullptr) return NotEnoughPoints("pairs by the plain and by the caching allocator");
  const double gain = SpeedUp(*plain, *caching);
  Judgement judgement{
      .verdict = VerdictOf(gain > 2),
      .explanation = absl::StrFormat("%s: %s a pair from the cache, %s from the %s", SizeText(static_cast<double>(largest)),
                                     TimeText(caching->statistics.median), TimeText(plain->statistics.median),
                                     is_cpu ? "system" : "driver"),
      .findings = {
          {is_cpu ? "caching_over_system" : "caching_over_device_malloc", gain, "speed-up of a pair at the largest size"}}};
  if (const Point* const ordered = at("stream_ordered", "pairs"); ordered != nullptr) {
    judgement.findings.push_back(
        {"caching_over_stream_ordered", SpeedUp(*ordered, *caching), "likewise, over the driver's stream-ordered allocator"});
  }
  if (const Point* const trace = at("caching", "trace"); trace != nullptr) {
    judgement.findings.push_back({"reserved_over_allocated", trace->figures.at("reserved_over_allocated"),
                                  "memory held over memory in use, after the trace"});
  }
  return judgement;
}

Benchmark OnCpu() {
  return {.name = kName,
          .claim =
              "Memory from the system costs a call, and a fault for each page that is touched; a caching allocator hands out "
              "what it has, at the price of holding more than is in use. Each block's pages are touched. Pairs: allocate "
              "and free. Trace: 256 blocks whose sizes vary around size_bytes, 64 of them live at once.",
          .axes = {WordAxis("allocator", "the system's, or the device's own", {"system", "caching"}),
                   WordAxis("pattern", "of allocations", {"pairs", "trace"}),
                   IntegerAxis("size_bytes", "of a block", 1, std::int64_t{1} << 36, {4096, 65536, 1048576})},
          .plot = {.x_axis = "size_bytes", .y = "seconds_per_allocation"},
          .unsupported_reason = &AnyDeviceWillDo,
          .make_subject = &Make,
          .judge = &Judge};
}

Benchmark OnCuda() {
  Benchmark benchmark = OnCpu();
  benchmark.claim =
      "Memory from the driver costs a call that maps pages, and freeing it waits for the device; the driver's stream-ordered "
      "allocator keeps a pool; a caching allocator hands out what it has without a call, at the price of holding more than is "
      "in "
      "use. By the host's clock. Pairs: allocate and free. Trace: 256 blocks whose sizes vary around size_bytes, 64 of them "
      "live "
      "at once.";
  benchmark.axes[0] =
      WordAxis("allocator", "cudaMalloc, cudaMallocAsync, or the device's own", {"device_malloc", "stream_ordered", "caching"});
  benchmark.axes[2] =
      IntegerAxis("size_bytes", "of a block", 1, std::int64_t{1} << 36, {4096, 1 << 20, std::int64_t{64} << 20});
  return benchmark;
}

}  // namespace

Benchmark AllocatorPairs(device::DeviceType type) { return type == device::DeviceType::kCpu ? OnCpu() : OnCuda(); }

}  // namespace ridgeline::engine::benchmark
