#include "client/cpp/client.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "client/cpp/attend_stream_call.h"
#include "client/cpp/client_impl.h"
#include "client/cpp/error.h"
#include "grpc/grpc.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace ridgeline::client {
namespace {

constexpr char kClientNameKey[] = "x-ridgeline-client";
constexpr char kSessionKey[] = "x-ridgeline-session";
constexpr char kHealthCheckMethod[] = "/grpc.health.v1.Health/Check";

absl::Status CheckAddress(absl::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || colon == 0 || colon + 1 == address.size()) {
    return absl::InvalidArgumentError(absl::StrCat("address is '", address, "'; host:port or unix:/path is needed"));
  }
  return absl::OkStatus();
}

// What metadata can carry.
absl::Status CheckMetadata(absl::string_view what, absl::string_view text) {
  const bool printable = std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isprint(c); });
  if (printable && absl::StripAsciiWhitespace(text) == text) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " is '", text, "'; printable ASCII is needed"));
}

absl::Status ReadPem(const std::string& path, std::string& pem) {
  if (path.empty()) return absl::OkStatus();
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  pem = text.str();
  if (absl::StrContains(pem, "-----BEGIN ")) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, " can't be read, or is no PEM file"));
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(const ClientOptions& options) {
  if (!options.tls.has_value()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions ssl;
  absl::Status status = ReadPem(options.tls->authority, ssl.pem_root_certs);
  status.Update(ReadPem(options.tls->certificate, ssl.pem_cert_chain));
  status.Update(ReadPem(options.tls->key, ssl.pem_private_key));
  if (!status.ok()) return status;
  return grpc::SslCredentials(ssl);
}

grpc::ChannelArguments MakeChannelArguments(const ClientOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetMaxReceiveMessageSize(-1);
  // One policy decides about retries: ours. It needs the channel to reconnect as soon as it asks, not a second later.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  const int backoff_ms =
      static_cast<int>(std::max<std::int64_t>(1, absl::ToInt64Milliseconds(options.retry.initial_backoff / 2)));
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, backoff_ms);
  if (options.own_connection) arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

// Keeps gRPC up until the process ends. Otherwise it goes down with the last channel, and after large messages gRPC 1.51 then
// waits 10 seconds for objects of its own.
void PinGrpc() {
  static const bool pinned = (grpc_init(), true);
  static_cast<void>(pinned);
}

absl::Status CheckSize(const google::protobuf::Message& request) {
  const std::size_t bytes = request.ByteSizeLong();
  if (bytes <= std::numeric_limits<std::int32_t>::max()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the request takes ", bytes, " bytes; a message holds less than 2 GiB"));
}

}  // namespace

// The call keeps the context's address, so both stay where they are.
class AttendStream::Impl {
 public:
  ~Impl() {
    if (call == nullptr || finished) return;
    context.TryCancel();
    static_cast<void>(Finish());  // CANCELLED, by us
  }

  void WritesDone() {
    if (!std::exchange(writes_done, true)) call->WritesDone();
  }

  grpc::Status Finish() {
    WritesDone();
    v1::AttendResponse unread;
    while (call->Read(&unread)) {
    }
    finished = true;
    return call->Finish();
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttendRequest, v1::AttendResponse>> call;
  bool writes_done = false;
  bool finished = false;
};

AttendStream::AttendStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AttendStream::AttendStream(AttendStream&&) noexcept = default;
AttendStream& AttendStream::operator=(AttendStream&&) noexcept = default;
AttendStream::~AttendStream() = default;

bool AttendStream::Write(const v1::AttendRequest& request) { return impl_->call->Write(request); }
void AttendStream::WritesDone() { impl_->WritesDone(); }
bool AttendStream::Read(v1::AttendResponse* response) { return impl_->call->Read(response); }
absl::Status AttendStream::Finish() { return ToAbsl(impl_->Finish()); }

absl::Status ToAbsl(const grpc::Status& status) {
  return ErrorFromWire(status.error_code(), status.error_message(), status.error_details());
}

Client::Impl::Impl(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                   ClientOptions client_options)
    : options(std::move(client_options)),
      channel(grpc::CreateCustomChannel(address, credentials, MakeChannelArguments(options))),
      attention(channel),
      device(channel),
      benchmark(channel),
      fused(channel),
      kv_cache(channel),
      health(channel) {}

void Client::Impl::Prepare(grpc::ClientContext& context, absl::Time deadline) const {
  context.set_deadline(absl::ToChronoTime(deadline));
  if (!options.name.empty()) context.AddMetadata(kClientNameKey, options.name);
  if (!options.session.empty()) context.AddMetadata(kSessionKey, options.session);
  if (!options.traceparent.empty()) context.AddMetadata("traceparent", options.traceparent);
}

absl::StatusOr<Client> Client::Create(absl::string_view address, ClientOptions options) {
  absl::Status status = CheckAddress(address);
  status.Update(CheckMetadata("client name", options.name));
  status.Update(CheckMetadata("session", options.session));
  status.Update(CheckMetadata("traceparent", options.traceparent));
  if (!status.ok()) return status;
  PinGrpc();
  const auto credentials = MakeCredentials(options);
  if (!credentials.ok()) return credentials.status();
  return Client(std::make_unique<Impl>(std::string(address), *credentials, std::move(options)));
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

absl::StatusOr<v1::AttendResponse> Client::Attend(const v1::AttendRequest& request) const {
  if (absl::Status status = CheckSize(request); !status.ok()) return status;
  const bool appends = request.paged().has_new_key() || request.paged().has_new_value();
  return impl_->Unary(impl_->attention, &v1::AttentionService::Stub::Attend, request, /*may_retry=*/!appends);
}

AttendStream Client::OpenAttendStream(absl::Duration timeout) const {
  auto stream = std::make_unique<AttendStream::Impl>();
  impl_->Prepare(stream->context, absl::Now() + timeout);
  stream->call = impl_->attention.AttendStream(&stream->context);
  return AttendStream(std::move(stream));
}

AsyncAttendStream Client::OpenAsyncAttendStream(AttendStreamEvents& events, absl::Duration timeout) const {
  auto call = std::make_shared<AttendStreamCall>(impl_->channel, events);
  impl_->Prepare(call->context(), absl::Now() + timeout);
  call->Start();
  return AsyncAttendStream(std::move(call));
}

absl::StatusOr<v1::FuseResponse> Client::Fuse(const v1::FuseRequest& request) const {
  if (absl::Status status = CheckSize(request); !status.ok()) return status;
  return impl_->Unary(impl_->fused, &v1::FusedService::Stub::Fuse, request, /*may_retry=*/!request.has_rope_append());
}

absl::StatusOr<v1::ListFusedOpsResponse> Client::ListFusedOps() const {
  return impl_->Unary(impl_->fused, &v1::FusedService::Stub::ListFusedOps);
}

absl::StatusOr<v1::Load> Client::GetLoad() const { return impl_->Unary(impl_->device, &v1::DeviceService::Stub::GetLoad); }

absl::StatusOr<v1::Device> Client::GetDevice() const {
  return impl_->Unary(impl_->device, &v1::DeviceService::Stub::GetDevice);
}

absl::StatusOr<v1::MemoryStats> Client::GetMemoryStats() const {
  return impl_->Unary(impl_->device, &v1::DeviceService::Stub::GetMemoryStats);
}

absl::Status Client::ResetPeakMemoryStats() const {
  return impl_->Unary(impl_->device, &v1::DeviceService::Stub::ResetPeakMemoryStats).status();
}

absl::StatusOr<v1::EmptyMemoryCacheResponse> Client::EmptyMemoryCache() const {
  return impl_->Unary(impl_->device, &v1::DeviceService::Stub::EmptyMemoryCache);
}

absl::StatusOr<v1::MemorySnapshot> Client::GetMemorySnapshot(const v1::GetMemorySnapshotRequest& request) const {
  return impl_->Unary(impl_->device, &v1::DeviceService::Stub::GetMemorySnapshot, request);
}

absl::StatusOr<v1::MemoryPlan> Client::PlanMemory(const v1::PlanMemoryRequest& request) const {
  return impl_->Unary(impl_->device, &v1::DeviceService::Stub::PlanMemory, request);
}

absl::StatusOr<v1::TraceSummary> Client::CaptureTrace(
    const v1::CaptureTraceRequest& request, absl::FunctionRef<absl::Status(const std::string& json)> take_piece) const {
  grpc::ClientContext context;
  impl_->Prepare(context, absl::Now() + impl_->options.timeout);
  const auto call = impl_->device.CaptureTrace(&context, request);
  absl::Status taken;
  std::optional<v1::TraceSummary> summary;
  v1::CaptureTraceResponse response;
  while (taken.ok() && call->Read(&response)) {
    if (response.has_summary()) {
      summary = response.summary();
    } else {
      taken = take_piece(response.json());
    }
  }
  if (!taken.ok()) context.TryCancel();
  const absl::Status status = ToAbsl(call->Finish());
  if (!taken.ok()) return taken;
  if (!status.ok()) return status;
  if (!summary.has_value()) return absl::InternalError("the server ended the capture without a summary");
  return *summary;
}

absl::Status Client::CheckHealth(const std::string& service) const {
  constexpr int kServing = 1;
  HealthCheckRequest request;
  request.set_value(service);
  HealthCheckResponse response;
  absl::Status status = impl_->Call([&](grpc::ClientContext& context) {
    grpc::Status rpc_status;
    absl::Notification done;
    impl_->health.UnaryCall(&context, kHealthCheckMethod, grpc::StubOptions(), &request, &response, [&](grpc::Status result) {
      rpc_status = std::move(result);
      done.Notify();
    });
    done.WaitForNotification();
    return rpc_status;
  });
  if (!status.ok()) return status;
  if (response.value() == kServing) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(service.empty() ? "the server" : service, " is not serving"));
}

}  // namespace ridgeline::client
