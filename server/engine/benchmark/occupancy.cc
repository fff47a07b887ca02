#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/microbench/occupancy.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::microbench::kMostMultiprocessors;
using kernels::microbench::kWaveWarps;
using kernels::microbench::OccupancyLimit;
using kernels::microbench::OccupancyParams;
using kernels::microbench::OccupancyWork;

constexpr std::int64_t kWarpThreads = 32;
constexpr std::int64_t kLoadFloats = 4;               // of a thread's load
constexpr std::int64_t kWarpsOfMultiprocessor = 128;  // that run there in all, some at a time
constexpr std::int64_t kLoads = 32;                   // of a thread: with the warps of all of an H200, 277 MB
constexpr std::int64_t kMultiplyAdds = 16384;         // of a thread
constexpr std::int64_t kCheckedWarps = 97;            // a prime: they meet every place in a block

struct Arrays {
  Buffer source, sums, resident;
};

OccupancyLimit LimitOf(const std::string& name) {
  if (name == "registers") return OccupancyLimit::kRegisters;
  return name == "grid" ? OccupancyLimit::kGrid : OccupancyLimit::kSharedMemory;
}

// ---- The check --------------------------------------------------------------------------------------------------------------

// The same for every thread.
float EndOfChains(const OccupancyParams& params) {
  float sum = 0;
  for (int chain = 0; chain < params.independent; ++chain) {
    float x = static_cast<float>(chain + 1);
    for (std::int64_t step = 0; step < params.steps; step += params.independent) {
      x = std::fma(x, kernels::microbench::kOccupancyFactor, kernels::microbench::kOccupancyAddend);
    }
    sum += x;
  }
  return sum;
}

absl::Status CheckChains(const std::vector<float>& sums, const OccupancyParams& params) {
  const float want = EndOfChains(params);
  for (std::size_t thread = 0; thread < sums.size(); ++thread) {
    RIDGELINE_RETURN_IF_ERROR(ExpectNear(absl::StrCat("the chains of thread ", thread), sums[thread], want, 0));
  }
  return absl::OkStatus();
}

absl::Status CheckLoads(const std::vector<float>& source, const std::vector<float>& sums, const OccupancyParams& params) {
  for (std::int64_t i = 0; i < kCheckedWarps; ++i) {
    const std::int64_t warp = (params.num_warps - 1) * i / (kCheckedWarps - 1);
    for (std::int64_t lane = 0; lane < kWarpThreads; ++lane) {
      double want = 0, magnitude = 0;
      for (std::int64_t load = 0; load < params.steps; ++load) {
        const float* const loaded = source.data() + ((warp * params.steps + load) * kWarpThreads + lane) * kLoadFloats;
        for (std::int64_t j = 0; j < kLoadFloats; ++j) {
          want += loaded[j];
          magnitude += std::abs(loaded[j]);
        }
      }
      RIDGELINE_RETURN_IF_ERROR(ExpectNear(absl::StrCat("the sum of thread ", warp * kWarpThreads + lane),
                                           sums[warp * kWarpThreads + lane], want, 1e-5 * magnitude));
    }
  }
  return absl::OkStatus();
}

// The most warps that a block has found on its multiprocessor, itself included. Of most multiprocessors: where a block has gone
// and the news of it is still under way, its successor counts it too.
absl::StatusOr<std::int64_t> CountResident(device::Lane& lane, const Arrays& arrays) {
  RIDGELINE_ASSIGN_OR_RETURN(const auto host, measure::ReadBack(lane, arrays.resident, arrays.resident.size_bytes()));
  std::vector<std::int32_t> peaks(kMostMultiprocessors);
  std::memcpy(peaks.data(), static_cast<const std::int32_t*>(host->data()) + kMostMultiprocessors,
              peaks.size() * sizeof(std::int32_t));
  peaks.erase(std::remove(peaks.begin(), peaks.end(), 0), peaks.end());
  if (peaks.empty()) return absl::InternalError("no multiprocessor has counted a warp");
  std::nth_element(peaks.begin(), peaks.begin() + static_cast<std::ptrdiff_t>(peaks.size() / 2), peaks.end());
  return peaks[peaks.size() / 2];
}

absl::Status Check(device::Lane& lane, const Arrays& arrays, const OccupancyParams& params, std::int64_t& resident) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> sums, ReadFloats(lane, arrays.sums, params.num_warps * kWarpThreads));
  if (params.work == OccupancyWork::kLoads) {
    RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> source,
                               ReadFloats(lane, arrays.source, params.num_warps * params.steps * kWarpThreads * kLoadFloats));
    RIDGELINE_RETURN_IF_ERROR(CheckLoads(source, sums, params));
  } else {
    RIDGELINE_RETURN_IF_ERROR(CheckChains(sums, params));
  }
  RIDGELINE_ASSIGN_OR_RETURN(resident, CountResident(lane, arrays));
  const int wanted = params.limit == OccupancyLimit::kGrid ? std::min(params.warps, kWaveWarps) : params.warps;
  if (resident == wanted) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("a multiprocessor of this device holds ", resident, " of these warps where ",
                                               wanted, " were to be resident"));
}

// ---- The points -------------------------------------------------------------------------------------------------------------

OccupancyParams ParamsOf(const PointContext& context) {
  const AxisValues& values = context.values;
  OccupancyParams params{};
  params.work = values.Word("work") == "loads" ? OccupancyWork::kLoads : OccupancyWork::kMultiplyAdds;
  params.limit = LimitOf(values.Word("limit"));
  params.warps = static_cast<int>(values.Integer("warps"));
  params.independent = static_cast<int>(values.Integer("independent"));
  const bool is_grid = params.limit == OccupancyLimit::kGrid;
  params.num_warps = context.device.info().compute_units * (is_grid ? params.warps : kWarpsOfMultiprocessor);
  params.steps = params.work == OccupancyWork::kLoads ? kLoads : kMultiplyAdds;
  return params;
}

absl::Status Allocate(const PointContext& context, OccupancyParams& params, Arrays& arrays) {
  if (params.work == OccupancyWork::kLoads) {
    RIDGELINE_ASSIGN_OR_RETURN(arrays.source,
                               RandomFloats(context, params.num_warps * params.steps * kWarpThreads * kLoadFloats));
  }
  RIDGELINE_ASSIGN_OR_RETURN(arrays.sums, EmptyFloats(context, params.num_warps * kWarpThreads));
  const auto zeros = std::make_shared<const std::vector<std::int32_t>>(2 * kMostMultiprocessors, 0);
  const device::HostSlice slice{zeros->data(), static_cast<std::int64_t>(zeros->size() * sizeof(std::int32_t))};
  RIDGELINE_ASSIGN_OR_RETURN(arrays.resident, context.lane.Upload({&slice, 1}, zeros));
  params.source = static_cast<const float*>(arrays.source.data());
  params.sums = static_cast<float*>(arrays.sums.data());
  params.resident = static_cast<std::int32_t*>(arrays.resident.data());
  return absl::OkStatus();
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  OccupancyParams params = ParamsOf(context);
  const auto arrays = std::make_shared<Arrays>();
  RIDGELINE_RETURN_IF_ERROR(Allocate(context, params, *arrays));
  const bool is_loads = params.work == OccupancyWork::kLoads;
  const std::int64_t operations = params.num_warps * kWarpThreads * params.steps;
  const std::int64_t result_bytes = params.num_warps * kWarpThreads * 4;
  const device::DeviceInfo& info = context.device.info();
  // In units of the promised peak, if there is one.
  const double amount = static_cast<double>(is_loads ? operations * kLoadFloats * 4 : 2 * operations);
  const double peak = is_loads ? info.theoretical_bytes_per_second : info.theoretical_float32_flops_per_second;
  const auto resident = std::make_shared<std::int64_t>(0);
  return Subject{.kernel = absl::StrCat("occupancy[", context.values.ToString(), "]"),
                 .flops = is_loads ? operations * kLoadFloats : 2 * operations,
                 .bytes = is_loads ? operations * kLoadFloats * 4 + result_bytes : result_bytes,
                 .queue = [params, arrays](device::Lane& lane) { return lane.Run(params); },
                 .check = [params, arrays, resident, &lane = context.lane] { return Check(lane, *arrays, params, *resident); },
                 .figures =
                     [resident, amount, peak](double seconds) {
                       std::map<std::string, double> figures{{"resident_warps", static_cast<double>(*resident)}};
                       if (peak > 0) figures["peak_share"] = amount / seconds / peak;
                       return figures;
                     }};
}

// Registers limit to what there are kernels for; waves are shown by chains of multiply-adds, whose time is known best.
bool MakesSense(const AxisValues& values) {
  const OccupancyLimit limit = LimitOf(values.Word("limit"));
  const auto warps = static_cast<int>(values.Integer("warps"));
  if (values.Integer("independent") != 1 && values.Integer("independent") != 4) return false;
  if (kernels::microbench::OccupancyBlockWarps(limit, warps) == 0) return false;
  if (limit == OccupancyLimit::kGrid) {
    return warps % 16 <= 1 && warps >= kWaveWarps && values.Word("work") == "multiply_adds" &&
           values.Integer("independent") == 1;
  }
  if (limit == OccupancyLimit::kSharedMemory) return warps % 16 != 1 || warps == 1;
  const auto& compiled = kernels::microbench::kRegisterWarps;
  return std::find(std::begin(compiled), std::end(compiled), warps) != std::end(compiled);
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  const auto at = [&](const std::string& work, const std::string& limit, std::int64_t independent, std::int64_t warps) {
    return Find(points, [=](const Point& point) {
      return point.values.Word("work") == work && point.values.Word("limit") == limit &&
             point.values.Integer("independent") == independent && point.values.Integer("warps") == warps;
    });
  };
  const Point* const few = at("loads", "shared_memory", 1, 4);
  const Point* const many = at("loads", "shared_memory", 1, 64);
  if (few == nullptr || many == nullptr) return NotEnoughPoints("loads by 4 and by 64 resident warps");
  const double gain = SpeedUp(*few, *many);
  Judgement judgement{
      .verdict = VerdictOf(gain > 3),
      .explanation = absl::StrFormat("%s with 4 resident warps a multiprocessor, %s with 64",
                                     RateText(few->report.bytes_per_second, "B"), RateText(many->report.bytes_per_second, "B")),
      .findings = {{"warps_64_over_4", gain, "ratio of bandwidths, a load at a time for each thread"}}};
  if (const Point* const ahead = at("loads", "shared_memory", 4, 4); ahead != nullptr) {
    judgement.findings.push_back(
        {"independent_loads_gain", SpeedUp(*few, *ahead), "four loads at a time for each thread, of 4 resident warps"});
  }
  const Point* const whole = at("multiply_adds", "grid", 1, kWaveWarps);
  const Point* const tail = at("multiply_adds", "grid", 1, kWaveWarps + 1);
  if (whole != nullptr && tail != nullptr) {
    judgement.findings.push_back(
        {"tail_cost", SpeedUp(*tail, *whole), "time of a wave of 16 warps and one warp more, over that of the wave"});
  }
  return judgement;
}

}  // namespace

Benchmark Occupancy() {
  return {
      .name = "occupancy",
      .claim =
          "A GPU hides waiting by running other warps: loads reach memory's bandwidth, and dependent multiply-adds the peak, "
          "only with enough of them resident. Shared memory and registers that a block asks for limit how many there are; "
          "independent operations of a thread do the same as more warps. Grid: 16 warps are resident, and the grid has so "
          "many for each multiprocessor: one above a whole wave costs another.",
      .axes = {WordAxis("work", "16-byte loads, or chains of multiply-adds", {"loads", "multiply_adds"}),
               WordAxis("limit", "what limits the resident warps", {"shared_memory", "registers", "grid"}),
               IntegerAxis("independent", "operations of a thread that don't wait for each other: 1 or 4", 1, 4, {1, 4}),
               IntegerAxis("warps", "resident on a multiprocessor; grid: of the grid, for each multiprocessor", 1, 64,
                           {1, 2, 4, 8, 16, 17, 32, 33, 48, 49, 64})},
      .plot = {.x_axis = "warps", .y = "peak_share"},
      .unsupported_reason =
          [](const device::DeviceInfo& device) {
            return std::string(
                device.type == device::DeviceType::kCpu
                    ? "a CPU core runs one or two threads and hides latency by reordering instructions, so there "
                      "are no resident warps to vary"
                    : "");
          },
      .makes_sense = &MakesSense,
      .make_subject = &Make,
      .judge = &Judge};
}

}  // namespace ridgeline::engine::benchmark
