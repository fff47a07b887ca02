// Ridgeline's services as plain calls: a deadline on each, retries where they can help, messages of any size, and errors that
// say which field was wrong.
//
//   absl::StatusOr<Client> client = Client::Create("127.0.0.1:50051");
//   absl::StatusOr<v1::AttendResponse> response = client->Attend(request);
//   if (!response.ok()) std::cerr << ErrorString(response.status());
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cpp/retry.h"
#include "ridgeline/v1/attention.pb.h"
#include "ridgeline/v1/benchmark.pb.h"
#include "ridgeline/v1/device.pb.h"

namespace ridgeline::client {

struct ClientOptions {
  // For one call, its retries included. Infinite is allowed, but a lost server then goes unnoticed.
  absl::Duration timeout = absl::Minutes(5);
  RetryPolicy retry;
  // Who calls, for the server's quotas: printable ASCII, sent as x-ridgeline-client.
  std::string name = "ridgeline-client";
  // Clients of one address share a connection within a process; true: this one has its own.
  bool own_connection = false;
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
  // `address` is host:port, unix:/path or another gRPC target. INVALID_ARGUMENT for one that can't be, and for a name that
  // metadata can't carry; whether a server is there shows with the first call.
  static absl::StatusOr<Client> Create(absl::string_view address, ClientOptions options = {});
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  // Errors are as error.h describes them. A request that appends to a KV cache is sent once and never retried.
  absl::StatusOr<v1::AttendResponse> Attend(const v1::AttendRequest& request) const;
  // `timeout` is for the whole stream. Streams are not retried: only the caller knows which requests to send again.
  AttendStream OpenAttendStream(absl::Duration timeout = absl::InfiniteDuration()) const;

  absl::StatusOr<v1::Device> GetDevice() const;
  absl::StatusOr<v1::MemoryStats> GetMemoryStats() const;
  absl::Status ResetPeakMemoryStats() const;
  absl::StatusOr<v1::EmptyMemoryCacheResponse> EmptyMemoryCache() const;
  absl::StatusOr<v1::Roofline> GetRoofline() const;

  // grpc.health.v1: OK when the service (empty: the server as a whole) is SERVING; FAILED_PRECONDITION when it is not,
  // NOT_FOUND when there is no such service.
  absl::Status CheckHealth(const std::string& service) const;

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ridgeline::client
