#include "server/base/metrics.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ridgeline::base {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricsTest, ExposesCountersGaugesAndHistograms) {
  MetricsRegistry registry;
  registry.AddCounter("ridgeline_things_total", "Things made.", {{"kind", "small"}}).Increment(2);
  registry.AddGauge("ridgeline_lanes", "Lanes.").Set(4);
  const Histogram seconds = registry.AddHistogram("ridgeline_thing_seconds", "Time of a thing.", {0.1, 1});
  seconds.Observe(0.05);
  seconds.Observe(5);

  const std::string text = registry.Serialize();
  EXPECT_THAT(text, HasSubstr("# HELP ridgeline_things_total Things made.\n# TYPE ridgeline_things_total counter\n"
                              "ridgeline_things_total{kind=\"small\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE ridgeline_lanes gauge\nridgeline_lanes 4\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE ridgeline_thing_seconds histogram\n"));
  EXPECT_THAT(text, HasSubstr("ridgeline_thing_seconds_bucket{le=\"0.1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("ridgeline_thing_seconds_bucket{le=\"+Inf\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("ridgeline_thing_seconds_count 2\n"));
}

TEST(MetricsTest, SeriesOfOneNameShareAFamily) {
  MetricsRegistry registry;
  registry.AddCounter("ridgeline_things_total", "Things made.", {{"kind", "small"}}).Increment();
  registry.AddCounter("ridgeline_things_total", "Things made.", {{"kind", "large"}}).Increment(3);
  registry.AddCounter("ridgeline_things_total", "Things made.", {{"kind", "small"}}).Increment();

  const std::string text = registry.Serialize();
  EXPECT_EQ(text.find("# TYPE"), text.rfind("# TYPE"));
  EXPECT_THAT(text, HasSubstr("{kind=\"small\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("{kind=\"large\"} 3\n"));
}

TEST(MetricsTest, AReadingThatGoesTakesItsSeriesWithIt) {
  MetricsRegistry registry;
  OptionalGauge power = registry.AddOptionalGauge("ridgeline_power_watts", "Power.", {{"gpu", "a"}});
  OptionalGauge other = registry.AddOptionalGauge("ridgeline_power_watts", "Power.", {{"gpu", "b"}});
  EXPECT_THAT(registry.Serialize(), Not(HasSubstr("ridgeline_power_watts"))) << "there was no reading yet";
  power.Set(350);
  other.Set(0);
  EXPECT_THAT(registry.Serialize(),
              AllOf(HasSubstr("ridgeline_power_watts{gpu=\"a\"} 350\n"), HasSubstr("ridgeline_power_watts{gpu=\"b\"} 0\n")));
  power.Set(std::nullopt);
  EXPECT_THAT(registry.Serialize(), AllOf(Not(HasSubstr("gpu=\"a\"")), HasSubstr("gpu=\"b\"")));
  power.Set(std::nullopt);
  power.Set(351);
  EXPECT_THAT(registry.Serialize(), HasSubstr("ridgeline_power_watts{gpu=\"a\"} 351\n"));
}

TEST(MetricsDeathTest, OneNameHasOneMeaning) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  MetricsRegistry registry;
  registry.AddCounter("ridgeline_things_total", "Things made.");
  registry.AddHistogram("ridgeline_thing_seconds", "Time of a thing.", {0.1, 1});
  EXPECT_DEATH(registry.AddCounter("ridgeline_things_total", "Other things."), "check failed");
  EXPECT_DEATH(registry.AddGauge("ridgeline_things_total", "Things made."), "check failed");
  EXPECT_DEATH(registry.AddHistogram("ridgeline_thing_seconds", "Time of a thing.", {0.5}), "check failed");
  EXPECT_DEATH(registry.AddGauge("no dashes-or spaces", "Bad name."), "metric refused");
}

TEST(MetricsTest, ScrapeHooksRunBeforeTheText) {
  MetricsRegistry registry;
  const Gauge depth = registry.AddGauge("ridgeline_depth", "Depth.");
  int scrapes = 0;
  std::shared_ptr<void> hook = registry.OnScrape([&] { depth.Set(++scrapes * 10); });
  EXPECT_THAT(registry.Serialize(), HasSubstr("ridgeline_depth 10\n"));
  EXPECT_THAT(registry.Serialize(), HasSubstr("ridgeline_depth 20\n"));
  hook.reset();
  EXPECT_THAT(registry.Serialize(), HasSubstr("ridgeline_depth 20\n"));
  EXPECT_EQ(scrapes, 2);
}

TEST(MetricsTest, AHookMayOutliveItsRegistry) {
  std::optional<MetricsRegistry> registry(std::in_place);
  const std::shared_ptr<void> hook = registry->OnScrape([] {});
  EXPECT_NE(hook, nullptr);
  registry.reset();
}

TEST(MetricsTest, ThreadsMayCountAndScrapeAtOnce) {
  MetricsRegistry registry;
  const Counter counter = registry.AddCounter("ridgeline_things_total", "Things made.");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&registry, counter] {
      for (int n = 0; n < 1000; ++n) counter.Increment();
      const std::shared_ptr<void> hook = registry.OnScrape([] {});
      EXPECT_THAT(registry.Serialize(), Not(HasSubstr("ridgeline_things_total 0\n")));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(registry.Serialize(), HasSubstr("ridgeline_things_total 4000\n"));
}

TEST(MetricsTest, FractionsHaveBucketsOnBothSidesOfTheWhole) {
  const std::vector<double> bounds = FractionBuckets();
  EXPECT_LE(bounds.size(), 15);
  EXPECT_LT(bounds.front(), 1);
  EXPECT_GT(bounds.back(), 1);
  EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end()));
}

TEST(MetricsTest, LatencyHistogramsHaveAtMost16Buckets) {
  const std::vector<double> bounds = LatencyBuckets();
  EXPECT_EQ(bounds.size(), 15);  // and +Inf
  EXPECT_EQ(bounds.front(), 50e-6);
  EXPECT_EQ(bounds.back(), 30);
  EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end()));
}

}  // namespace
}  // namespace ridgeline::base
