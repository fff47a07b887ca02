// Metrics, and the only user of prometheus-cpp. A series is looked up once and kept; labels take few values, all known to the
// server. Handles are cheap to copy, safe from any thread and live as long as the registry.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace prometheus {
class Counter;
template <typename T>
class Family;
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

// A reading that may be missing: its series exists while there is one, and is gone when there is not, so that nobody takes an
// old value for the present one. One thread at a time.
class OptionalGauge {
 public:
  OptionalGauge(prometheus::Family<prometheus::Gauge>* family, Labels labels) : family_(family), labels_(std::move(labels)) {}
  void Set(std::optional<double> value);

 private:
  prometheus::Family<prometheus::Gauge>* family_;
  Labels labels_;
  prometheus::Gauge* gauge_ = nullptr;  // null: no series
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

// Upper bounds of shares of what is possible: 13 buckets from 1 % to 110 %, which counts what a cache made faster than memory.
std::vector<double> FractionBuckets();

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
  // No series yet.
  OptionalGauge AddOptionalGauge(std::string_view name, std::string_view help, const Labels& labels = {});
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
