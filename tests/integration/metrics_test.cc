// The metrics port: its pages, the README's table of metrics, how many series there are and what may be a label.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/cpp/client.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "tests/integration/random_attend.h"
#include "tests/integration/raw_call.h"
#include "tests/support/daemon.h"
#include "tests/support/exposition.h"
#include "tests/support/source_folder.h"
#include "tests/support/status_matchers.h"

namespace ridgeline {
namespace {

using client::Client;
using support::Daemon;
using support::Exposition;
using support::IsOk;
using ::testing::HasSubstr;
using ::testing::Not;

// Of one daemon, GPU readings and every method's status codes included. A server of a hundred nodes keeps a hundred times as
// many.
constexpr std::int64_t kSeriesBudget = 2500;
constexpr int kMostBuckets = 16;

Client Connect(const std::string& address, const std::string& name = "metrics-test") {
  client::ClientOptions options;
  options.timeout = absl::Minutes(1);
  options.retry.max_attempts = 1;
  options.name = name;
  return *Client::Create(address, options);
}

std::string Scrape(const Daemon& daemon) { return support::HttpRequest("GET", daemon.metrics_address(), "/metrics").body; }

// "ridgeline.v1.AttentionService/Attend" and so on: what the definitions have.
std::vector<std::string> AllMethods() {
  std::vector<std::string> methods;
  const std::filesystem::path folder = support::SourceFolder() / "proto/ridgeline/v1";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto* const file = google::protobuf::DescriptorPool::generated_pool()->FindFileByName(
        absl::StrCat("ridgeline/v1/", entry.path().filename().string()));
    if (file == nullptr) continue;
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        methods.push_back(absl::StrCat(file->service(s)->full_name(), "/", file->service(s)->method(m)->name()));
      }
    }
  }
  return methods;
}

// Every method once with an empty request, which each answers in its own way, then work of every kind that has series.
void SweepEveryRpc(const Daemon& daemon) {
  constexpr absl::Duration kTimeout = absl::Seconds(4);  // of streams, of which CallRaw reads the first answer
  for (const std::string& method : AllMethods()) CallRaw(daemon.tcp_address(), absl::StrCat("/", method), "", kTimeout);
  const Client client = Connect(daemon.unix_address());
  for (const auto algorithm : {v1::ALGORITHM_STANDARD, v1::ALGORITHM_FLASH}) {
    EXPECT_THAT(client.Attend(RandomAttend(100, algorithm)), IsOk());
  }
  v1::BenchmarkRequest benchmark;
  benchmark.set_name("attention");
  benchmark.mutable_measurement()->mutable_max_time()->set_nanos(1'000'000);
  benchmark.mutable_measurement()->mutable_warm_up();
  EXPECT_THAT(client.Benchmark(benchmark, [](const v1::BenchmarkResponse&) { return absl::OkStatus(); }), IsOk());
}

struct Row {
  std::string type, labels, unit, meaning;
};

// The README's table, by the name of the metric.
std::map<std::string, Row> ReadmeTable() {
  std::map<std::string, Row> rows;
  std::ifstream readme(support::SourceFolder() / "README.md");
  for (std::string line; std::getline(readme, line);) {
    const std::vector<std::string> cells = support::MarkdownCells(line);
    if (cells.size() != 5 || !absl::StartsWith(cells[0], "`ridgeline_")) continue;
    const std::string name(absl::StripSuffix(absl::StripPrefix(cells[0], "`"), "`"));
    EXPECT_TRUE(rows.emplace(name, Row{cells[1], cells[2], cells[3], cells[4]}).second) << name << " has two rows";
  }
  return rows;
}

// What only a GPU has; a scrape of one is among the tests' data.
bool IsOfGpu(const std::string& name) {
  return absl::StartsWith(name, "ridgeline_gpu_") || absl::StartsWith(name, "ridgeline_pinned_");
}

// What daemons have only since that scrape was taken.
bool IsNewerThanScrapeOfGpu(const std::string& name) { return name == "ridgeline_quota_refusals_total"; }

// The unit that a name tells.
std::string UnitOf(absl::string_view name) {
  absl::ConsumeSuffix(&name, "_total");
  for (const char* unit : {"bytes_per_second", "flops_per_second", "seconds", "bytes", "hertz", "watts", "celsius", "flops"}) {
    if (absl::EndsWith(name, absl::StrCat("_", unit))) return absl::StrReplaceAll(unit, {{"_per_", "/"}});
  }
  return "1";
}

// What the scrape of a CPU or GPU has against what the table says. What a benchmark reached is there once one has run.
void ExpectTableHolds(const Exposition& scrape, const std::map<std::string, Row>& table, bool has_gpu, bool ran_benchmark) {
  for (const auto& [name, family] : scrape) {
    const auto row = table.find(name);
    ASSERT_NE(row, table.end()) << "README.md has no row for " << name;
    EXPECT_EQ(row->second.type, family.type) << name;
    EXPECT_EQ(row->second.labels, absl::StrJoin(family.labels, ", ")) << name;
    EXPECT_EQ(row->second.unit, UnitOf(name)) << name;
    EXPECT_EQ(row->second.meaning, family.help) << name;
  }
  for (const auto& [name, row] : table) {
    if ((IsOfGpu(name) && !has_gpu) || name == "ridgeline_gpu_last_xid") continue;  // most GPUs never had one
    if (absl::StartsWith(name, "ridgeline_benchmark_") && !ran_benchmark) continue;
    if (has_gpu && IsNewerThanScrapeOfGpu(name)) continue;
    EXPECT_EQ(scrape.count(name), 1) << "README.md has a row for " << name << ", which is not served";
  }
}

TEST(MetricsTest, PagesAnswer) {
  Daemon daemon;
  ASSERT_THAT(Connect(daemon.unix_address()).Attend(RandomAttend(100, v1::ALGORITHM_FLASH)), IsOk());
  const support::HttpResponse metrics = support::HttpRequest("GET", daemon.metrics_address(), "/metrics");
  EXPECT_EQ(metrics.code, 200);
  for (const char* line : {"ridgeline_rpc_requests_total{code=\"OK\",method=\"ridgeline.v1.AttentionService/Attend\"} 1\n",
                           "ridgeline_lanes_busy 0\n", "ridgeline_healthy 1\n", "ridgeline_draining 0\n",
                           "ridgeline_silence_seconds 0\n", "ridgeline_queue_wait_seconds_count 1\n"}) {
    EXPECT_THAT(metrics.body, HasSubstr(line));
  }
  EXPECT_EQ(support::HttpRequest("GET", daemon.metrics_address(), "/healthz").body, "ok\n");
  EXPECT_EQ(support::HttpRequest("GET", daemon.metrics_address(), "/readyz").code, 200);
  EXPECT_EQ(support::HttpRequest("GET", daemon.metrics_address(), "/").code, 404);
  EXPECT_EQ(support::HttpRequest("GET", daemon.metrics_address(), "/metricsx").code, 404);
  EXPECT_EQ(support::HttpRequest("POST", daemon.metrics_address(), "/metrics").code, 405);
}

TEST(MetricsTest, AfterASweepOfEveryRpcTheReadmeTableHoldsAndTheBudgetToo) {
  Daemon daemon;
  SweepEveryRpc(daemon);
  const std::string text = Scrape(daemon);
  const Exposition scrape = support::ParseExposition(text);
  for (const std::string& method : AllMethods()) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("ridgeline_rpc_duration_seconds_count{method=\"", method, "\"} ")));
    EXPECT_THAT(text, Not(HasSubstr(absl::StrCat("ridgeline_rpc_duration_seconds_count{method=\"", method, "\"} 0\n"))))
        << "it was never called";
  }
  ExpectTableHolds(scrape, ReadmeTable(), /*has_gpu=*/support::TestDevice() != "cpu", /*ran_benchmark=*/true);
  std::int64_t num_series = 0;
  for (const auto& [name, family] : scrape) {
    num_series += family.num_samples;
    for (const auto& [series, count] : family.buckets) EXPECT_LE(count, kMostBuckets) << name << " " << series;
  }
  EXPECT_LE(num_series, kSeriesBudget);
  RecordProperty("series", static_cast<int>(num_series));
}

TEST(MetricsTest, TheReadmeTableHoldsForARecordedGpuToo) {
  const std::filesystem::path path = support::SourceFolder() / "tests/data/h200/metrics.txt";
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  const Exposition scrape = support::ParseExposition(std::string(std::istreambuf_iterator<char>(file), {}));
  ExpectTableHolds(scrape, ReadmeTable(), /*has_gpu=*/true, /*ran_benchmark=*/false);
}

TEST(MetricsTest, NothingThatAClientSendsBecomesALabel) {
  Daemon daemon;
  const auto call = [&](int i) {
    const Client client = Connect(daemon.unix_address(), absl::StrCat("client-", i));
    EXPECT_THAT(client.GetLoad(), IsOk());
    EXPECT_THAT(client.GetKvCache(absl::StrCat("kvCaches/cache-", i)), Not(IsOk()));
    v1::BenchmarkRequest benchmark;
    benchmark.set_name(absl::StrCat("benchmark-", i));
    EXPECT_THAT(client.Benchmark(benchmark, [](const v1::BenchmarkResponse&) { return absl::OkStatus(); }), Not(IsOk()));
    CallRaw(daemon.tcp_address(), absl::StrCat("/ridgeline.v1.NoSuchService/Method", i), "");
  };
  const auto count_series = [&] {
    std::int64_t num_series = 0;
    for (const auto& [name, family] : support::ParseExposition(Scrape(daemon))) num_series += family.num_samples;
    return num_series;
  };
  call(0);
  const std::int64_t before = count_series();
  for (int i = 1; i < 20; ++i) call(i);
  EXPECT_EQ(count_series(), before);
  const std::string text = Scrape(daemon);
  for (const char* word : {"client-", "cache-", "benchmark-", "NoSuchService"}) EXPECT_THAT(text, Not(HasSubstr(word)));
}

TEST(MetricsTest, PromtoolFindsNothingToSay) {
  if (std::system("promtool --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no promtool (Debian package prometheus)";
  Daemon daemon;
  ASSERT_THAT(Connect(daemon.unix_address()).Attend(RandomAttend(100, v1::ALGORITHM_FLASH)), IsOk());
  const std::string path = absl::StrCat(daemon.folder(), "/metrics");
  const std::string output = absl::StrCat(daemon.folder(), "/promtool");
  std::ofstream(path) << Scrape(daemon);
  EXPECT_EQ(std::system(absl::StrCat("promtool check metrics <", path, " >", output, " 2>&1").c_str()), 0);
  std::ifstream said(output);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(said), {}), "");
}

}  // namespace
}  // namespace ridgeline
