// The engine: checks requests, admits them to a bounded queue, runs them on the device's lanes and answers. No network, no
// CUDA.
//
//   Attend ─► validate ─► plan ─► admit ─► queue ─► lane free? ─► upload, kernel, download ─► done(result)
//     (caller's thread, microseconds, never blocks)                   (device's thread)
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/metrics.h"
#include "server/device/device.h"
#include "server/engine/admission.h"
#include "server/engine/append_request.h"
#include "server/engine/attend_request.h"
#include "server/engine/batch_former.h"
#include "server/engine/benchmark/benchmark.h"
#include "server/engine/benchmark/work.h"
#include "server/engine/call.h"
#include "server/engine/call_context.h"
#include "server/engine/fuse_request.h"
#include "server/engine/kv_cache/kv_cache_store.h"
#include "server/engine/kv_cache/resources.h"
#include "server/engine/load.h"
#include "server/engine/roofline.h"
#include "server/engine/sequence_transfer.h"
#include "server/engine/trace/trace_recorder.h"

namespace ridgeline::engine {

struct EngineOptions {
  AdmissionLimits admission = {};
  BatchLimits batches = {};
  bool serving_waits = true;  // while a benchmark has the device; false: requests are refused meanwhile
  // Makes a call to this engine's server that computes nothing, and awaits its answer: launch_overhead measures it. Errors:
  // UNIMPLEMENTED, with the reason; any other ends the benchmark. Null: there is no server.
  benchmark::EmptyCall empty_call = {};
  int answer_threads = 4;  // that send the answers of launches which many requests shared; >= 0. 8 are no faster on 16 cores.
  kv_cache::KvCacheOptions kv_cache = {};
};

using AttendDone = absl::AnyInvocable<void(absl::StatusOr<AttendResult>)>;
using FuseDone = absl::AnyInvocable<void(absl::StatusOr<FuseResult>)>;
using CreateKvCacheDone = absl::AnyInvocable<void(absl::StatusOr<kv_cache::CacheInfo>)>;
using AppendKeyValueDone = absl::AnyInvocable<void(absl::StatusOr<AppendKeyValueResult>)>;

// Thread-safe.
class Engine {
 public:
  virtual ~Engine() = default;  // drains without a limit

  // Calls `done` exactly once: before returning if the request is refused (costs microseconds, changes nothing), else on a
  // thread of the device's (or of Cancel's caller). Errors: INVALID_ARGUMENT naming the field; UNIMPLEMENTED;
  // RESOURCE_EXHAUSTED (queue full, or the client's share of it: with a retry delay; memory, or an answer too large for the
  // caller: with the bytes that it would take); UNAVAILABLE (draining, or the device lost); DEADLINE_EXCEEDED (before it
  // reached a lane); CANCELLED. Null is returned when the call was refused.
  //
  // Calls that name the same sequence of a KV cache, one of them appending to it, run one after the other in the order in which
  // they came; all others in any order.
  virtual std::shared_ptr<Call> Attend(AttendRequest request, CallContext context, AttendDone done) = 0;

  // Likewise. Errors beside those of Attend: NOT_FOUND; RESOURCE_EXHAUSTED (reason KV_CACHE_FULL). All rows are appended or,
  // after any error, none.
  virtual std::shared_ptr<Call> AppendKeyValue(AppendKeyValueRequest request, CallContext context, AppendKeyValueDone done) = 0;

  // Likewise; kRopeAppend as AppendKeyValue.
  virtual std::shared_ptr<Call> Fuse(FuseRequest request, CallContext context, FuseDone done) = 0;

  // Likewise, but on a thread that makes caches one after the other and doesn't wait for the queue. Errors:
  // KvCacheStore::CreateCache's; RESOURCE_EXHAUSTED (QUEUE_FULL) with a retry delay; CANCELLED, and there will be no cache.
  virtual std::shared_ptr<Call> CreateKvCache(kv_cache::CreateCacheRequest request, CallContext context,
                                              CreateKvCacheDone done) = 0;

  // The sequence as it is now, to be read piece by piece. Errors: INVALID_ARGUMENT, NOT_FOUND.
  virtual absl::StatusOr<std::unique_ptr<SequenceReader>> ExportSequence(const kv_cache::Caller& caller,
                                                                         const std::string& name) = 0;

  // A new sequence of the cache `parent`, to be written piece by piece; an empty id: the server makes one. Errors:
  // INVALID_ARGUMENT naming the field ("parent", "sequence_id", or below "part.header"), NOT_FOUND, ALREADY_EXISTS.
  virtual absl::StatusOr<std::unique_ptr<SequenceWriter>> ImportSequence(const kv_cache::Caller& caller,
                                                                         const std::string& parent,
                                                                         const std::string& sequence_id,
                                                                         SequenceHeader header) = 0;

  // What the measuring instrument can show on this device, and what not and why.
  virtual std::vector<benchmark::Description> ListBenchmarks() const = 0;

  // One benchmark, with the device for itself: it begins when what runs has ended, and what comes meanwhile waits or is refused
  // (EngineOptions::serving_waits). `tell` is called with its progress and results, from one thread at a time and no more after
  // `done`. Errors: INVALID_ARGUMENT naming the field, NOT_FOUND, UNIMPLEMENTED, RESOURCE_EXHAUSTED (reason BENCHMARK_RUNNING:
  // another one has the device), DEADLINE_EXCEEDED and CANCELLED (also while it runs: after one more sample it ends),
  // UNAVAILABLE, INTERNAL (a kernel computed something wrong).
  virtual std::shared_ptr<Call> Benchmark(benchmark::Request request, CallContext context, benchmark::TellEvent tell,
                                          benchmark::Done done) = 0;

  // From now on there will be no new caches, and no work but that of those there are: what else comes is refused as while
  // draining. Waits until no cache is left, be it that its client deleted it or that its lease ran out. False if `timeout` came
  // first: then the rest goes with the process.
  virtual bool DrainSessions(absl::Duration timeout) = 0;

  // Refuses new work from now on and waits until admitted work has finished. False if `timeout` came first; what is left is
  // then cancelled, and waited for.
  virtual bool Drain(absl::Duration timeout) = 0;

  // Caches and sequences, apart from what is computed with them.
  virtual kv_cache::KvCacheStore& kv_caches() = 0;

  virtual Load load() const = 0;
  virtual const Roofline& roofline() const = 0;
  virtual device::Device& device() = 0;
  // What is captured of the daemon's activity, on request.
  virtual TraceRecorder& trace() = 0;

  // Ok while the process is alive in the sense of /healthz: the device is not lost and, if work is pending, it has completed
  // some within the last minute, or what runs is so much that it may take longer.
  virtual absl::Status health() const = 0;
};

// `device`, `metrics` and `clock` outlive the engine.
std::unique_ptr<Engine> CreateEngine(const EngineOptions& options, device::Device& device, Roofline roofline,
                                     base::MetricsRegistry& metrics, const base::Clock& clock);

}  // namespace ridgeline::engine
