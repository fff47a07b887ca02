#include "server/api/connection_limits.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "grpc/impl/codegen/compression_types.h"
#include "grpc/impl/codegen/grpc_types.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server_builder.h"
#include "server/api/byte_buffer.h"

namespace ridgeline::api {
namespace {

// Messages that gRPC may hold at a time before it stops reading from its sockets.
constexpr std::int64_t kMessagesInMemory = 4;

// Our services take no thread while a call waits, but gRPC's reflection and channelz take one for each call that is open. One
// more gets RESOURCE_EXHAUSTED.
constexpr int kThreadsOfOtherServices = 16;

// A client may ask as often as that whether we are still there; gRPC's own clients allow no shorter time either. By default
// gRPC hangs up on clients that ask every five minutes while a call waits, and would be none the safer for it: what costs is
// pings in a row.
constexpr absl::Duration kShortestPingInterval = absl::Seconds(10);

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(std::clamp<std::int64_t>(absl::ToInt64Milliseconds(duration), 1, std::numeric_limits<int>::max()));
}

// Compressed messages are unpacked before anybody looks at their size: a message of 1 MiB may become 1 GiB. Numbers hardly
// shrink anyway.
void RefuseCompression(grpc::ServerBuilder& builder) {
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
}

// Otherwise the calls of a host that has lost its power or its network would last until their deadlines, and what they hold,
// such as the snapshot of an export, with them; and connections without a call for ever.
void SetPings(absl::Duration peer_timeout, grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(peer_timeout / 2));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(peer_timeout / 2));
  // Also while the peer reads too slowly for data to leave.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);  // ours and the peer's
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, Milliseconds(kShortestPingInterval));
  // Who connects and says nothing, or half of something.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(peer_timeout));
}

}  // namespace

void SetConnectionLimits(const ConnectionLimits& limits, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(limits.max_message_bytes));
  builder.SetMaxSendMessageSize(static_cast<int>(kMaxMessageBytes));
  RefuseCompression(builder);
  grpc::ResourceQuota quota("ridgelined");
  quota.Resize(static_cast<std::size_t>(limits.max_message_bytes) * kMessagesInMemory);
  quota.SetMaxThreads(kThreadsOfOtherServices);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);  // each takes threads of the quota's from the start
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.max_streams_per_connection);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, Milliseconds(limits.max_connection_age));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, Milliseconds(limits.max_connection_age));
  SetPings(limits.peer_timeout, builder);
}

}  // namespace ridgeline::api
