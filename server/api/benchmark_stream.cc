#include "server/api/benchmark_stream.h"

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "ridgeline/v1/benchmark.pb.h"
#include "server/api/benchmark_converter.h"
#include "server/api/byte_buffer.h"
#include "server/api/pending_call.h"
#include "server/base/mutex.h"

namespace ridgeline::api {
namespace {

using engine::benchmark::Event;
using engine::benchmark::Progress;

class BenchmarkReactor : public BenchmarkReactorBase {
 public:
  BenchmarkReactor(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext& context)
      : rpc_(shared, metrics, context) {}

  // The engine's callbacks hold the reactor too.
  void Start(std::shared_ptr<BenchmarkReactor> self, grpc::ByteBuffer& wire_request, engine::Engine& engine) {
    self_ = std::move(self);
    v1::BenchmarkRequest request;
    if (absl::Status status = Parse(wire_request, request); !status.ok()) return End(status);
    pending_.Start([&] {
      return engine.Benchmark(
          FromMessage(request), rpc_.call_context(), [self = self_](Event event) { self->Tell(std::move(event)); },
          [self = self_](const absl::Status& status) {
            self->pending_.Answered();
            self->End(status);
          });
    });
  }

  void OnWriteDone(bool ok) override {
    {
      base::MutexLock lock(&mutex_);
      is_writing_ = false;
      is_read_ = ok;
      if (is_read_) WriteNext();
    }
    if (!ok) pending_.Cancel();
    FinishIfDone();
  }

  void OnCancel() override { pending_.Cancel(); }

  void OnDone() override { self_.reset(); }

 private:
  void Tell(Event event) {
    base::MutexLock lock(&mutex_);
    const bool replaces =
        !outbox_.empty() && std::holds_alternative<Progress>(outbox_.back()) && std::holds_alternative<Progress>(event);
    if (replaces) outbox_.pop_back();
    outbox_.push_back(std::move(event));
    if (is_read_) WriteNext();
  }

  void End(const absl::Status& status) {
    {
      base::MutexLock lock(&mutex_);
      end_ = status;
    }
    FinishIfDone();
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (is_writing_ || outbox_.empty()) return;
    message_ = Serialize(ToMessage(outbox_.front()));
    outbox_.pop_front();
    is_writing_ = true;
    StartWrite(&message_);
  }

  // When the benchmark has ended, and all that it told is written or nobody reads it.
  void FinishIfDone() {
    absl::Status status;
    {
      base::MutexLock lock(&mutex_);
      const bool all_written = !is_writing_ && (outbox_.empty() || !is_read_);
      if (!end_.has_value() || !all_written || std::exchange(is_finished_, true)) return;
      status = *end_;
    }
    Finish(rpc_.Close(status));
  }

  Rpc rpc_;
  PendingCall pending_;
  std::shared_ptr<BenchmarkReactor> self_;
  base::Mutex mutex_;
  std::deque<Event> outbox_ ABSL_GUARDED_BY(mutex_);
  grpc::ByteBuffer message_ ABSL_GUARDED_BY(mutex_);  // of the write under way
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_read_ ABSL_GUARDED_BY(mutex_) = true;  // false: a write failed, and so would all others
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

BenchmarkReactorBase* StartBenchmarkStream(RpcContext& shared, MethodMetrics& metrics, grpc::CallbackServerContext& context,
                                           grpc::ByteBuffer& request, engine::Engine& engine) {
  auto reactor = std::make_shared<BenchmarkReactor>(shared, metrics, context);
  reactor->Start(reactor, request, engine);
  return reactor.get();
}

}  // namespace ridgeline::api
