#include "tests/resilience/measuring_callers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "ridgeline/v1/benchmark.pb.h"
#include "ridgeline/v1/fused.pb.h"
#include "tests/integration/kv_cache_fixture.h"

namespace ridgeline::resilience {
namespace {

constexpr std::int64_t kRows = 64;
constexpr std::int64_t kRowElems = 256;
constexpr absl::Duration kPauseOfFusing = absl::Milliseconds(2);
constexpr absl::Duration kPauseOfMeasuring = absl::Milliseconds(500);

std::vector<float> RandomRows(std::mt19937_64& generator) {
  std::normal_distribution<float> normal;
  std::vector<float> rows(kRows * kRowElems);
  for (float& element : rows) element = normal(generator);
  return rows;
}

bool IsSoftmax(const std::vector<float>& got, const std::vector<float>& rows) {
  constexpr double kBound = 1e-5;  // weights are at most 1
  if (got.size() != rows.size()) return false;
  for (std::size_t row = 0; row < rows.size(); row += kRowElems) {
    double sum = 0;
    for (std::size_t i = row; i < row + kRowElems; ++i) sum += std::exp(static_cast<double>(rows[i]));
    for (std::size_t i = row; i < row + kRowElems; ++i) {
      if (!(std::abs(got[i] - std::exp(static_cast<double>(rows[i])) / sum) <= kBound)) return false;
    }
  }
  return true;
}

v1::BenchmarkRequest SmallBenchmark() {
  v1::BenchmarkRequest request;
  request.set_name("batch_size");
  for (const auto& [axis, value] : {std::pair("batch", "4"), std::pair("width", "64"), std::pair("type", "float32")}) {
    (*request.mutable_axes())[axis].add_values(value);
  }
  request.mutable_measurement()->mutable_max_time()->set_nanos(20'000'000);
  return request;
}

}  // namespace

void Fuse(const std::string& address, std::uint64_t seed, Tally& tally, const std::atomic<bool>& ends) {
  const client::Client client = integration::Connect(address, absl::StrCat("fusing-", seed));
  std::mt19937_64 generator(seed);
  while (!ends) {
    const std::vector<float> rows = RandomRows(generator);
    v1::FuseRequest request;
    *request.mutable_softmax()->mutable_input() = integration::InlineTensor({kRows, kRowElems}, rows);
    const absl::Time begin = absl::Now();
    const auto answer = client.Fuse(request);
    if (answer.ok()) {
      const absl::Duration latency = absl::Now() - begin;
      tally.NoteAnswer("Fuse", answer->outputs_size() == 1 && IsSoftmax(integration::Elements(answer->outputs(0)), rows),
                       latency);
    } else {
      tally.NoteError("Fuse", answer.status(), Tally::Hurry::kNone);
    }
    absl::SleepFor(kPauseOfFusing);
  }
}

void Benchmark(const std::string& address, Tally& tally, const std::atomic<bool>& ends) {
  const client::Client client = integration::Connect(address, "measuring");
  while (!ends) {
    int num_points = 0;
    const absl::Time begin = absl::Now();
    const absl::Status status = client.Benchmark(SmallBenchmark(), [&](const v1::BenchmarkResponse& event) {
      num_points += event.has_point() && event.point().skipped_reason().empty() ? 1 : 0;
      return absl::OkStatus();
    });
    if (status.ok()) {
      tally.NoteAnswer("Benchmark", num_points == 1, absl::Now() - begin);
    } else {
      tally.NoteError("Benchmark", status, Tally::Hurry::kNone);
    }
    for (int i = 0; i < 50 && !ends; ++i) absl::SleepFor(kPauseOfMeasuring / 50);
  }
}

}  // namespace ridgeline::resilience
