#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/microbench/compute_peak.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/compute_peak.h"
#include "server/engine/benchmark/matrix_product.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::microbench::FmaParams;
using kernels::microbench::FmaType;

constexpr std::int64_t kIterations = 200'000;  // long beside what it takes to wake a thread
constexpr std::int64_t kMatrixSize = 1024;

// A chain of multiply-adds, element by element. Each is rounded once everywhere, so not a bit may differ.
template <typename T>
T FmaChainAtEnd(T x, std::int64_t iterations) {
  for (std::int64_t i = 0; i < iterations; ++i) {
    x = std::fma(x, static_cast<T>(kernels::microbench::kFmaFactor), static_cast<T>(kernels::microbench::kFmaAddend));
  }
  return x;
}

template <typename T>
double SumOfFmaChains(int chains, std::int64_t iterations) {
  double sum = 0;
  for (int c = 0; c < chains; ++c) sum += static_cast<double>(FmaChainAtEnd(static_cast<T>(c + 1), iterations));
  return sum;
}

absl::StatusOr<Subject> MakeFma(const PointContext& context, FmaType type) {
  FmaParams params{.type = type,
                   .chains = static_cast<int>(context.values.Integer("chains")),
                   .iterations = kIterations,
                   .tasks = context.values.Word("threads") == "one" ? 1 : context.device.info().compute_units,
                   .results = nullptr};
  RIDGELINE_ASSIGN_OR_RETURN(Buffer allocated, context.lane.Allocate(params.tasks * 8));
  auto results = std::make_shared<Buffer>(std::move(allocated));
  params.results = static_cast<double*>(results->data());
  return Subject{
      .kernel = absl::StrCat("fma_cpu[chains=", params.chains, ",threads=", params.tasks, "]"),
      .flops = kernels::microbench::FmaTaskFlopsOnCpu(params) * params.tasks,
      .queue = [params, results](device::Lane& lane) { return lane.Run(params); },
      .check = [&lane = context.lane, params,
                results] { return CheckFmaSums(lane, *results, params.tasks, params.type, params.chains, params.iterations); }};
}

bool IsProduct(const AxisValues& values) { return values.Word("unit") == "matrix"; }

// Products have no chains to choose and use all threads; float64 is for chains, 16-bit types are for products.
bool MakesSense(const AxisValues& values) {
  const std::string& type = values.Word("type");
  if (IsProduct(values)) return type != "float64" && values.Word("threads") == "all" && values.Integer("chains") == 12;
  return type == "float32" || type == "float64";
}

absl::StatusOr<Subject> Make(const PointContext& context) {
  const std::string& type = context.values.Word("type");
  if (!IsProduct(context.values)) return MakeFma(context, type == "float32" ? FmaType::kFloat32 : FmaType::kFloat64);
  RIDGELINE_ASSIGN_OR_RETURN(const auto product,
                             MatrixProduct::Create(context, {TypeOf(type)}, {kMatrixSize, kMatrixSize, kMatrixSize}));
  return product->MakeSubject(context);
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& device) {
  const auto with_chains = [](std::int64_t chains) {
    return [chains](const Point& point) {
      return point.values.Word("unit") == "fma" && point.values.Word("type") == "float32" &&
             point.values.Word("threads") == "all" && point.values.Integer("chains") == chains;
    };
  };
  const Point* const one = Find(points, with_chains(1));
  const Point* const many = Find(points, with_chains(12));
  if (one == nullptr || many == nullptr)
    return NotEnoughPoints("float32 on the fma unit with 1 and with 12 chains on all threads");
  const double gain = many->report.flops_per_second / one->report.flops_per_second;
  Judgement judgement{
      .verdict = VerdictOf(gain > 3),
      .explanation = absl::StrCat("12 independent chains compute ", RateText(many->report.flops_per_second, "FLOP"),
                                  ", one chain ", RateText(one->report.flops_per_second, "FLOP"))};
  judgement.findings.push_back({"float32_fma_flops_per_second", many->report.flops_per_second, "of all threads"});
  if (device.theoretical_float32_flops_per_second > 0) {
    judgement.findings.push_back({"float32_fma_share_of_theoretical",
                                  many->report.flops_per_second / device.theoretical_float32_flops_per_second,
                                  "1 = what the hardware's description promises"});
  }
  return judgement;
}

Benchmark OnCpu() {
  return {.name = "compute_peak",
          .claim =
              "Arithmetic reaches its peak only when enough independent operations are under way to hide each other's "
              "latency; the peak depends on the type and on the unit that computes.",
          .axes = {WordAxis("unit", "fused multiply-adds in registers, or matrix products", {"fma", "matrix"}),
                   WordAxis("type", "of the inputs", {"float32", "float64", "float16", "bfloat16"}),
                   WordAxis("threads", "one, or all of the device", {"one", "all"}),
                   Axis{.name = "chains",
                        .description = "independent chains of multiply-adds a thread",
                        .default_values = {"1", "2", "4", "8", "12"},
                        .choices = {"1", "2", "4", "8", "12"}}},
          .plot = {.x_axis = "chains", .y = "flops_per_second"},
          .unsupported_reason = &AnyDeviceWillDo,
          .makes_sense = &MakesSense,
          .make_subject = &Make,
          .judge = &Judge};
}

}  // namespace

absl::Status CheckFmaSums(device::Lane& lane, const Buffer& results, std::int64_t num_sums, FmaType type, int chains,
                          std::int64_t iterations) {
  RIDGELINE_ASSIGN_OR_RETURN(const auto host, measure::ReadBack(lane, results, num_sums * 8));
  const double want =
      type == FmaType::kFloat32 ? SumOfFmaChains<float>(chains, iterations) : SumOfFmaChains<double>(chains, iterations);
  const auto* const sums = static_cast<const double*>(host->data());
  for (std::int64_t i = 0; i < num_sums; ++i) {
    RIDGELINE_RETURN_IF_ERROR(ExpectNear("the chains' sum", sums[i], want, 1e-6 * std::abs(want)));
  }
  return absl::OkStatus();
}

Benchmark ComputePeak(device::DeviceType type) { return type == device::DeviceType::kCpu ? OnCpu() : ComputePeakOnCuda(); }

}  // namespace ridgeline::engine::benchmark
