// Ridgeline's services as plain calls: a deadline on each, retries where they can help, messages of any size, and errors that
// say which field was wrong.
//
//   absl::StatusOr<Client> client = Client::Create("127.0.0.1:50051");
//   absl::StatusOr<v1::AttendResponse> response = client->Attend(request);
//   if (!response.ok()) std::cerr << ErrorString(response.status());
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cpp/async_attend_stream.h"
#include "client/cpp/retry.h"
#include "ridgeline/v1/attention.pb.h"
#include "ridgeline/v1/benchmark.pb.h"
#include "ridgeline/v1/device.pb.h"
#include "ridgeline/v1/fused.pb.h"
#include "ridgeline/v1/kv_cache.pb.h"
#include "ridgeline/v1/memory.pb.h"
#include "ridgeline/v1/trace.pb.h"

namespace ridgeline::client {

// Paths of PEM files.
struct TlsOptions {
  std::string authority = {};    // that the server's certificate must lead to; empty: those that gRPC comes with
  std::string certificate = {};  // this client's, with what leads to its authority; empty: none
  std::string key = {};          // of `certificate`
};

struct ClientOptions {
  // For one call, its retries included. Infinite is allowed, but a lost server then goes unnoticed.
  absl::Duration timeout = absl::Minutes(5);
  RetryPolicy retry;
  // Who calls, sent as x-ridgeline-client: whose KV caches, turns and quotas these are, unless a certificate says it. Printable
  // ASCII; empty: one of those who give no name.
  std::string name;
  // routing_token of the KV cache that the calls use, sent as x-ridgeline-session: a proxy then keeps them on the cache's node.
  // Printable ASCII; empty: none.
  std::string session;
  // The caller's place in an OpenTelemetry trace, sent as traceparent (W3C Trace Context): it comes back in the daemon's logs
  // and captures. Printable ASCII; empty: none.
  std::string traceparent;
  // Clients of one address share a connection within a process; true: this one has its own.
  bool own_connection = false;
  // Unset: plain text.
  std::optional<TlsOptions> tls;
};

// Requests go out and answers come back on one stream, in the same order; several may be under way. One thread may write while
// another reads; a single thread should read before it has written more than the connection buffers.
class AttendStream {
 public:
  class Impl;
  explicit AttendStream(std::unique_ptr<Impl> impl);
  AttendStream(AttendStream&&) noexcept;
  AttendStream& operator=(AttendStream&&) noexcept;
  // Cancels a stream that was not finished.
  ~AttendStream();

  // False: the stream has ended, and Finish says why.
  [[nodiscard]] bool Write(const v1::AttendRequest& request);
  // No more requests will be written. Answers to those before still come.
  void WritesDone();
  // Waits for the next answer. False: there will be none, and Finish says why.
  [[nodiscard]] bool Read(v1::AttendResponse* response);
  // Ends the writes, drops the answers not read, and returns how the stream ended. Call it once; other calls must have
  // returned.
  absl::Status Finish();

 private:
  std::unique_ptr<Impl> impl_;
};

// Threads may share one. Connects on the first call, and again whenever the connection was lost.
class Client {
 public:
  // `address` is host:port, unix:/path or another gRPC target. INVALID_ARGUMENT for one that can't be, for a name that metadata
  // can't carry and for a file that can't be read; whether a server is there shows with the first call.
  static absl::StatusOr<Client> Create(absl::string_view address, ClientOptions options = {});
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  // Errors are as error.h describes them. A request that appends to a KV cache is sent once and never retried.
  absl::StatusOr<v1::AttendResponse> Attend(const v1::AttendRequest& request) const;
  // `timeout` is for the whole stream. Streams are not retried: only the caller knows which requests to send again.
  AttendStream OpenAttendStream(absl::Duration timeout = absl::InfiniteDuration()) const;
  // The same without a thread that waits. `events` must live until its OnEnd.
  AsyncAttendStream OpenAsyncAttendStream(AttendStreamEvents& events, absl::Duration timeout = absl::InfiniteDuration()) const;

  // A request with rope_append is sent once and never retried.
  absl::StatusOr<v1::FuseResponse> Fuse(const v1::FuseRequest& request) const;
  absl::StatusOr<v1::ListFusedOpsResponse> ListFusedOps() const;

  // KvCacheService. Calls that make, append or delete something are sent once and never retried: a lost answer does not say if
  // they were carried out.
  absl::StatusOr<v1::KvCache> CreateKvCache(const v1::CreateKvCacheRequest& request) const;
  absl::StatusOr<v1::KvCache> GetKvCache(const std::string& name) const;
  absl::StatusOr<v1::ListKvCachesResponse> ListKvCaches(const v1::ListKvCachesRequest& request = {}) const;
  absl::Status DeleteKvCache(const std::string& name) const;
  absl::StatusOr<v1::KvCache> RenewKvCacheLease(const v1::RenewKvCacheLeaseRequest& request) const;
  absl::StatusOr<v1::Sequence> CreateSequence(const std::string& parent, const std::string& sequence_id = "") const;
  absl::StatusOr<v1::Sequence> GetSequence(const std::string& name) const;
  absl::StatusOr<v1::ListSequencesResponse> ListSequences(const v1::ListSequencesRequest& request) const;
  absl::Status DeleteSequence(const std::string& name) const;
  absl::StatusOr<v1::Sequence> ForkSequence(const std::string& name, const std::string& sequence_id = "") const;
  absl::StatusOr<v1::AppendKeyValueResponse> AppendKeyValue(const v1::AppendKeyValueRequest& request) const;
  absl::StatusOr<v1::Sequence> TruncateSequence(const std::string& name, std::int64_t length) const;

  // Hands each part of the export to `take_part`, in order, the trailer last; an error of its ends the call with that error.
  // Ok: all parts came. Checksums are for the import to check.
  absl::Status ExportSequence(const std::string& name, absl::FunctionRef<absl::Status(v1::SequencePart part)> take_part) const;
  // Sends the parts that `next_part` gives, until it gives nothing; an error of its cancels the call and is returned. An empty
  // `sequence_id`: the server makes one.
  absl::StatusOr<v1::Sequence> ImportSequence(
      const std::string& parent, const std::string& sequence_id,
      absl::FunctionRef<absl::StatusOr<std::optional<v1::SequencePart>>()> next_part) const;

  absl::StatusOr<v1::Load> GetLoad() const;
  absl::StatusOr<v1::Device> GetDevice() const;
  absl::StatusOr<v1::MemoryStats> GetMemoryStats() const;
  absl::Status ResetPeakMemoryStats() const;
  absl::StatusOr<v1::EmptyMemoryCacheResponse> EmptyMemoryCache() const;
  absl::StatusOr<v1::MemorySnapshot> GetMemorySnapshot(const v1::GetMemorySnapshotRequest& request) const;
  absl::StatusOr<v1::MemoryPlan> PlanMemory(const v1::PlanMemoryRequest& request) const;
  // Watches the daemon for as long as the request says, and hands the pieces of a document of Chrome trace events to
  // `take_piece`; an error of its ends the call with that error. Not retried.
  absl::StatusOr<v1::TraceSummary> CaptureTrace(const v1::CaptureTraceRequest& request,
                                                absl::FunctionRef<absl::Status(const std::string& json)> take_piece) const;
  absl::StatusOr<v1::Roofline> GetRoofline() const;

  absl::StatusOr<v1::ListBenchmarksResponse> ListBenchmarks() const;
  // Runs a benchmark and hands each of its events to `take_event`, the summary last; an error of its cancels the benchmark and
  // is returned. Not retried.
  absl::Status Benchmark(const v1::BenchmarkRequest& request,
                         absl::FunctionRef<absl::Status(v1::BenchmarkResponse event)> take_event) const;

  // grpc.health.v1: OK when the service (empty: the server as a whole) is SERVING; FAILED_PRECONDITION when it is not,
  // NOT_FOUND when there is no such service.
  absl::Status CheckHealth(const std::string& service) const;

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ridgeline::client
