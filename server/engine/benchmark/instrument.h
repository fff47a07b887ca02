// The measuring instrument: what BenchmarkService asks of the engine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/device/device.h"
#include "server/engine/answer_threads.h"
#include "server/engine/benchmark/benchmark.h"
#include "server/engine/benchmark/work.h"
#include "server/engine/call.h"
#include "server/engine/call_context.h"
#include "server/engine/roofline.h"
#include "server/engine/scheduler.h"

namespace ridgeline::engine::benchmark {

// Runs one benchmark at a time; while it runs, no other work does. Thread-safe.
class Instrument {
 public:
  // The arguments outlive the instrument; no benchmark runs any more when it goes.
  Instrument(device::Device& device, const Roofline& roofline, const base::Clock& clock, Scheduler& scheduler,
             bool serving_waits, EmptyCall empty_call);

  std::vector<Description> List() const;

  // See Engine::Benchmark.
  std::shared_ptr<Call> Start(Request request, CallContext context, TellEvent tell, Done done);

 private:
  // Ok: the caller has the instrument, until it calls Leave.
  absl::Status Enter(const std::string& name);
  void Leave();

  device::Device& device_;
  const Roofline& roofline_;
  const base::Clock& clock_;
  Scheduler& scheduler_;
  const std::string serving_policy_;
  const EmptyCall empty_call_;
  base::Mutex mutex_;
  std::string running_ ABSL_GUARDED_BY(mutex_);  // empty: none
  absl::Time running_since_ ABSL_GUARDED_BY(mutex_);
  AnswerThreads thread_{1};
};

}  // namespace ridgeline::engine::benchmark
