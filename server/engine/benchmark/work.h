// A benchmark in the scheduler's line: when all lanes are free it gets the device for itself, and runs on a thread of its own.
#pragma once

#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/engine/answer_threads.h"
#include "server/engine/benchmark/benchmark.h"
#include "server/engine/benchmark/run.h"
#include "server/engine/work.h"

namespace ridgeline::engine::benchmark {

// Called from one thread at a time; no more after `done`.
using TellEvent = absl::AnyInvocable<void(Event event)>;
using Done = absl::AnyInvocable<void(absl::Status status)>;

struct WorkSurroundings {
  RunSurroundings run;
  AnswerThreads& thread;  // one thread: benchmarks run on it, one after the other
  std::string serving_policy;
  absl::AnyInvocable<void()> note_progress;  // the device lives: called between samples
};

// `deadline` ends the run, at the latest after one more sample.
std::unique_ptr<Work> MakeBenchmarkWork(Plan plan, absl::Time deadline, TellEvent tell, Done done,
                                        WorkSurroundings surroundings);

}  // namespace ridgeline::engine::benchmark
