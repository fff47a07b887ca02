// BenchmarkService's part of the client.
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "client/cpp/client_impl.h"

namespace ridgeline::client {

absl::StatusOr<v1::Roofline> Client::GetRoofline() const {
  return impl_->Unary(impl_->benchmark, &v1::BenchmarkService::Stub::GetRoofline);
}

absl::StatusOr<v1::ListBenchmarksResponse> Client::ListBenchmarks() const {
  return impl_->Unary(impl_->benchmark, &v1::BenchmarkService::Stub::ListBenchmarks);
}

absl::Status Client::Benchmark(const v1::BenchmarkRequest& request,
                               absl::FunctionRef<absl::Status(v1::BenchmarkResponse event)> take_event) const {
  grpc::ClientContext context;
  impl_->Prepare(context, absl::Now() + impl_->options.timeout);
  const auto call = impl_->benchmark.Benchmark(&context, request);
  absl::Status taken;
  bool has_summary = false;
  v1::BenchmarkResponse event;
  while (taken.ok() && call->Read(&event)) {
    has_summary = event.has_summary();
    taken = take_event(std::move(event));
  }
  if (!taken.ok()) context.TryCancel();
  absl::Status status = ToAbsl(call->Finish());
  if (!taken.ok()) return taken;
  if (status.ok() && !has_summary) return absl::InternalError("the server ended the benchmark without a summary");
  return status;
}

}  // namespace ridgeline::client
