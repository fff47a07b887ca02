// Metrics, and the only user of prometheus-cpp. A series is looked up once and kept; labels take few values, all known to the
// server. Handles are cheap to copy, safe from any thread and live as long as the registry.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace ridgeline::base {

using Labels = std::map<std::string, std::string>;

class Counter {
 public:
  explicit Counter(prometheus::Counter* counter) : counter_(counter) {}
  void Increment(double by = 1) const;  // by >= 0

 private:
  prometheus::Counter* counter_;
};

class Gauge {
 public:
  explicit Gauge(prometheus::Gauge* gauge) : gauge_(gauge) {}
  void Set(double value) const;

 private:
  prometheus::Gauge* gauge_;
};

class Histogram {
 public:
  explicit Histogram(prometheus::Histogram* histogram) : histogram_(histogram) {}
  void Observe(double value) const;

 private:
  prometheus::Histogram* histogram_;
};

// Upper bounds in seconds of the latency histograms: 15 buckets from 50 µs to 30 s (the 16th is +Inf).
std::vector<double> LatencyBuckets();

// Names follow Prometheus: prefix `ridgeline_`, base units, `_total` on counters. Registering the same name with other help or
// type aborts: it is our own mistake.
class MetricsRegistry {
 public:
  MetricsRegistry();
  ~MetricsRegistry();
  MetricsRegistry(const MetricsRegistry&) = delete;
  MetricsRegistry& operator=(const MetricsRegistry&) = delete;

  Counter AddCounter(std::string_view name, std::string_view help, const Labels& labels = {});
  Gauge AddGauge(std::string_view name, std::string_view help, const Labels& labels = {});
  Histogram AddHistogram(std::string_view name, std::string_view help, const std::vector<double>& upper_bounds,
                         const Labels& labels = {});

  // Runs before each scrape: sets gauges from state that lives elsewhere (allocator, queue). Must be fast and thread-safe.
  // Returned token unregisters on destruction.
  [[nodiscard]] std::shared_ptr<void> OnScrape(std::function<void()> update);

  // The exposition text for /metrics (version 0.0.4).
  std::string Serialize() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ridgeline::base
