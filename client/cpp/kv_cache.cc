// KvCacheService's methods of Client.
#include <utility>

#include "client/cpp/client.h"
#include "client/cpp/client_impl.h"

namespace ridgeline::client {

using Stub = v1::KvCacheService::Stub;

namespace {

// A request that consists of a name.
template <typename Request>
Request WithName(const std::string& name) {
  Request request;
  request.set_name(name);
  return request;
}

// Sends all parts. Not ok: `next_part` failed. Ok is also a server that takes no more of them: the call's status says why.
absl::Status WriteParts(grpc::ClientWriter<v1::ImportSequenceRequest>& call, v1::ImportSequenceRequest& request,
                        absl::FunctionRef<absl::StatusOr<std::optional<v1::SequencePart>>()> next_part) {
  while (true) {
    absl::StatusOr<std::optional<v1::SequencePart>> part = next_part();
    if (!part.ok()) return part.status();
    if (!part->has_value()) return absl::OkStatus();
    *request.mutable_part() = **std::move(part);
    if (!call.Write(request)) return absl::OkStatus();
    request.Clear();
  }
}

}  // namespace

absl::StatusOr<v1::KvCache> Client::CreateKvCache(const v1::CreateKvCacheRequest& request) const {
  return impl_->Unary(impl_->kv_cache, &Stub::CreateKvCache, request, /*may_retry=*/false);
}

absl::StatusOr<v1::KvCache> Client::GetKvCache(const std::string& name) const {
  return impl_->Unary(impl_->kv_cache, &Stub::GetKvCache, WithName<v1::GetKvCacheRequest>(name));
}

absl::StatusOr<v1::ListKvCachesResponse> Client::ListKvCaches(const v1::ListKvCachesRequest& request) const {
  return impl_->Unary(impl_->kv_cache, &Stub::ListKvCaches, request);
}

absl::Status Client::DeleteKvCache(const std::string& name) const {
  return impl_->Unary(impl_->kv_cache, &Stub::DeleteKvCache, WithName<v1::DeleteKvCacheRequest>(name), /*may_retry=*/false)
      .status();
}

absl::StatusOr<v1::KvCache> Client::RenewKvCacheLease(const v1::RenewKvCacheLeaseRequest& request) const {
  return impl_->Unary(impl_->kv_cache, &Stub::RenewKvCacheLease, request);
}

absl::StatusOr<v1::Sequence> Client::CreateSequence(const std::string& parent, const std::string& sequence_id) const {
  v1::CreateSequenceRequest request;
  request.set_parent(parent);
  request.set_sequence_id(sequence_id);
  return impl_->Unary(impl_->kv_cache, &Stub::CreateSequence, request, /*may_retry=*/false);
}

absl::StatusOr<v1::Sequence> Client::GetSequence(const std::string& name) const {
  return impl_->Unary(impl_->kv_cache, &Stub::GetSequence, WithName<v1::GetSequenceRequest>(name));
}

absl::StatusOr<v1::ListSequencesResponse> Client::ListSequences(const v1::ListSequencesRequest& request) const {
  return impl_->Unary(impl_->kv_cache, &Stub::ListSequences, request);
}

absl::Status Client::DeleteSequence(const std::string& name) const {
  return impl_->Unary(impl_->kv_cache, &Stub::DeleteSequence, WithName<v1::DeleteSequenceRequest>(name), /*may_retry=*/false)
      .status();
}

absl::StatusOr<v1::Sequence> Client::ForkSequence(const std::string& name, const std::string& sequence_id) const {
  auto request = WithName<v1::ForkSequenceRequest>(name);
  request.set_sequence_id(sequence_id);
  return impl_->Unary(impl_->kv_cache, &Stub::ForkSequence, request, /*may_retry=*/false);
}

absl::StatusOr<v1::AppendKeyValueResponse> Client::AppendKeyValue(const v1::AppendKeyValueRequest& request) const {
  return impl_->Unary(impl_->kv_cache, &Stub::AppendKeyValue, request, /*may_retry=*/false);
}

absl::StatusOr<v1::Sequence> Client::TruncateSequence(const std::string& name, std::int64_t length) const {
  auto request = WithName<v1::TruncateSequenceRequest>(name);
  request.set_length(length);
  return impl_->Unary(impl_->kv_cache, &Stub::TruncateSequence, request);
}

absl::Status Client::ExportSequence(const std::string& name,
                                    absl::FunctionRef<absl::Status(v1::SequencePart part)> take_part) const {
  grpc::ClientContext context;
  impl_->Prepare(context, absl::Now() + impl_->options.timeout);
  const auto call = impl_->kv_cache.ExportSequence(&context, WithName<v1::ExportSequenceRequest>(name));
  absl::Status taken;
  bool has_trailer = false;
  v1::SequencePart part;
  while (taken.ok() && call->Read(&part)) {
    has_trailer = part.has_trailer();
    taken = take_part(std::move(part));
  }
  if (!taken.ok()) context.TryCancel();
  absl::Status status = ToAbsl(call->Finish());
  if (!taken.ok()) return taken;
  if (status.ok() && !has_trailer) return absl::InternalError("the server ended the export without a trailer");
  return status;
}

absl::StatusOr<v1::Sequence> Client::ImportSequence(
    const std::string& parent, const std::string& sequence_id,
    absl::FunctionRef<absl::StatusOr<std::optional<v1::SequencePart>>()> next_part) const {
  grpc::ClientContext context;
  impl_->Prepare(context, absl::Now() + impl_->options.timeout);
  v1::Sequence sequence;
  const auto call = impl_->kv_cache.ImportSequence(&context, &sequence);
  v1::ImportSequenceRequest request;
  request.set_parent(parent);
  request.set_sequence_id(sequence_id);
  const absl::Status written = WriteParts(*call, request, next_part);
  if (!written.ok()) context.TryCancel();
  call->WritesDone();
  absl::Status status = ToAbsl(call->Finish());
  if (!written.ok()) return written;
  if (!status.ok()) return status;
  return sequence;
}

}  // namespace ridgeline::client
