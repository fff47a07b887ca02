#include "server/base/metrics.h"

#include <cstdint>
#include <exception>
#include <list>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"
#include "server/base/check.h"
#include "server/base/log.h"
#include "server/base/mutex.h"

namespace ridgeline::base {
namespace {

enum class Type : std::uint8_t { kCounter, kGauge, kHistogram };

// What every series of one name shares.
struct Definition {
  Type type;
  std::string help;
  std::vector<double> upper_bounds;  // histograms only

  bool operator==(const Definition&) const = default;
};

// The functions to run before a scrape. Shared with the tokens, which may outlive the registry.
class ScrapeHooks {
 public:
  using Hook = std::list<std::function<void()>>::iterator;

  Hook Add(std::function<void()> update) {
    MutexLock lock(&mutex_);
    return hooks_.insert(hooks_.end(), std::move(update));
  }

  // Returns once the hook does not run any more.
  void Remove(Hook hook) {
    MutexLock lock(&mutex_);
    hooks_.erase(hook);
  }

  void RunAll() {
    MutexLock lock(&mutex_);
    for (const std::function<void()>& update : hooks_) update();
  }

 private:
  Mutex mutex_;
  std::list<std::function<void()>> hooks_ ABSL_GUARDED_BY(mutex_);
};

class HookRegistration {
 public:
  HookRegistration(std::shared_ptr<ScrapeHooks> hooks, std::function<void()> update)
      : hooks_(std::move(hooks)), hook_(hooks_->Add(std::move(update))) {}
  ~HookRegistration() { hooks_->Remove(hook_); }
  HookRegistration(const HookRegistration&) = delete;
  HookRegistration& operator=(const HookRegistration&) = delete;

 private:
  std::shared_ptr<ScrapeHooks> hooks_;
  ScrapeHooks::Hook hook_;
};

}  // namespace

struct MetricsRegistry::Impl {
  // Aborts if the name is already used for something else.
  void Define(std::string_view name, Definition definition) ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(&mutex);
    const auto [entry, inserted] = definitions.try_emplace(std::string(name), definition);
    RIDGELINE_CHECK(inserted || entry->second == definition);
  }

  // prometheus-cpp throws for names that Prometheus does not allow: our own mistake.
  template <typename Builder, typename Function>
  auto* InFamily(Builder builder, std::string_view name, std::string_view help, Function&& function) {
    try {
      return function(builder.Name(std::string(name)).Help(std::string(help)).Register(registry));
    } catch (const std::exception& error) {
      Log(LogLevel::kError, "metric refused", {{"name", std::string(name)}, {"error", error.what()}});
      FailCheck(__FILE__, __LINE__, "metric and label names are valid");
    }
  }

  template <typename Builder, typename... Args>
  auto* Add(Builder builder, std::string_view name, std::string_view help, const Labels& labels, const Args&... args) {
    return InFamily(builder, name, help, [&](auto& family) { return &family.Add(labels, args...); });
  }

  prometheus::Registry registry;
  std::shared_ptr<ScrapeHooks> hooks = std::make_shared<ScrapeHooks>();
  Mutex mutex;
  std::map<std::string, Definition> definitions ABSL_GUARDED_BY(mutex);
};

void Counter::Increment(double by) const { counter_->Increment(by); }
void Gauge::Set(double value) const { gauge_->Set(value); }

void OptionalGauge::Set(std::optional<double> value) {
  if (value.has_value()) {
    if (gauge_ == nullptr) gauge_ = &family_->Add(labels_);
    gauge_->Set(*value);
  } else if (gauge_ != nullptr) {
    family_->Remove(std::exchange(gauge_, nullptr));
  }
}

void Histogram::Observe(double value) const { histogram_->Observe(value); }

std::vector<double> LatencyBuckets() {
  return {50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 250e-3, 1, 3, 10, 30};
}

std::vector<double> FractionBuckets() { return {0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1}; }

MetricsRegistry::MetricsRegistry() : impl_(std::make_unique<Impl>()) {}
MetricsRegistry::~MetricsRegistry() = default;

Counter MetricsRegistry::AddCounter(std::string_view name, std::string_view help, const Labels& labels) {
  impl_->Define(name, {.type = Type::kCounter, .help = std::string(help), .upper_bounds = {}});
  return Counter(impl_->Add(prometheus::BuildCounter(), name, help, labels));
}

Gauge MetricsRegistry::AddGauge(std::string_view name, std::string_view help, const Labels& labels) {
  impl_->Define(name, {.type = Type::kGauge, .help = std::string(help), .upper_bounds = {}});
  return Gauge(impl_->Add(prometheus::BuildGauge(), name, help, labels));
}

OptionalGauge MetricsRegistry::AddOptionalGauge(std::string_view name, std::string_view help, const Labels& labels) {
  impl_->Define(name, {.type = Type::kGauge, .help = std::string(help), .upper_bounds = {}});
  auto* const family = impl_->InFamily(prometheus::BuildGauge(), name, help,
                                       [](prometheus::Family<prometheus::Gauge>& built) { return &built; });
  return OptionalGauge(family, labels);
}

Histogram MetricsRegistry::AddHistogram(std::string_view name, std::string_view help, const std::vector<double>& upper_bounds,
                                        const Labels& labels) {
  impl_->Define(name, {.type = Type::kHistogram, .help = std::string(help), .upper_bounds = upper_bounds});
  return Histogram(impl_->Add(prometheus::BuildHistogram(), name, help, labels, upper_bounds));
}

std::shared_ptr<void> MetricsRegistry::OnScrape(std::function<void()> update) {
  return std::make_shared<HookRegistration>(impl_->hooks, std::move(update));
}

std::string MetricsRegistry::Serialize() const {
  impl_->hooks->RunAll();
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace ridgeline::base
