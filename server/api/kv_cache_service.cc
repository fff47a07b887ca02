#include "server/api/kv_cache_service.h"

#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/empty.pb.h"
#include "grpcpp/support/server_callback.h"
#include "ridgeline/v1/kv_cache.grpc.pb.h"
#include "server/api/deferred_unary.h"
#include "server/api/kv_cache_converter.h"
#include "server/api/sequence_export.h"
#include "server/api/sequence_import.h"
#include "server/api/tensor_converter.h"
#include "server/api/unary.h"
#include "server/base/status_macros.h"
#include "server/engine/kv_cache/kv_cache_store.h"

namespace ridgeline::api {
namespace {

using engine::kv_cache::KvCacheStore;

template <typename Service>
using RawSequences = v1::KvCacheService::WithRawCallbackMethod_CreateSequence<
    v1::KvCacheService::WithRawCallbackMethod_GetSequence<v1::KvCacheService::WithRawCallbackMethod_ListSequences<
        v1::KvCacheService::WithRawCallbackMethod_DeleteSequence<v1::KvCacheService::WithRawCallbackMethod_ForkSequence<
            v1::KvCacheService::WithRawCallbackMethod_AppendKeyValue<v1::KvCacheService::WithRawCallbackMethod_TruncateSequence<
                v1::KvCacheService::WithRawCallbackMethod_ExportSequence<
                    v1::KvCacheService::WithRawCallbackMethod_ImportSequence<Service>>>>>>>>>;

template <typename Service>
using RawCaches = v1::KvCacheService::WithRawCallbackMethod_CreateKvCache<v1::KvCacheService::WithRawCallbackMethod_GetKvCache<
    v1::KvCacheService::WithRawCallbackMethod_ListKvCaches<v1::KvCacheService::WithRawCallbackMethod_DeleteKvCache<
        v1::KvCacheService::WithRawCallbackMethod_RenewKvCacheLease<Service>>>>>;

// What the store gave, as a message.
template <typename Info>
auto ToMessage(const absl::StatusOr<Info>& info) -> absl::StatusOr<decltype(api::ToMessage(*info))> {
  if (!info.ok()) return info.status();
  return api::ToMessage(*info);
}

absl::StatusOr<google::protobuf::Empty> ToMessage(const absl::Status& status) {
  if (!status.ok()) return status;
  return google::protobuf::Empty();
}

class KvCacheService : public RawCaches<RawSequences<v1::KvCacheService::Service>> {
 public:
  KvCacheService(RpcContext& shared, engine::Engine& engine) : shared_(shared), engine_(engine), store_(engine.kv_caches()) {}

  // gRPC's names for what a handler is given.
  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
  using Reactor = grpc::ServerUnaryReactor;

  Reactor* CreateKvCache(Context* context, const Bytes* request, Bytes* response) override {
    auto* reactor = new DeferredUnary<engine::kv_cache::CacheInfo>(shared_, create_kv_cache_, *context, *response);
    reactor->Start(*request, &ParseCreateKvCacheRequest, engine_, &engine::Engine::CreateKvCache);
    return reactor;
  }

  Reactor* GetKvCache(Context* context, const Bytes* request, Bytes* response) override {
    return Answer<v1::GetKvCacheRequest>(
        get_kv_cache_, context, request, response,
        [this](const auto& message, const Rpc& rpc) { return ToMessage(store_.GetCache(rpc.caller(), message.name())); });
  }

  Reactor* ListKvCaches(Context* context, const Bytes* request, Bytes* response) override {
    return Answer<v1::ListKvCachesRequest>(list_kv_caches_, context, request, response,
                                           [this](const auto& message, const Rpc& rpc) {
                                             return ToMessage(store_.ListCaches(rpc.caller(), ListRequestOf(message)));
                                           });
  }

  Reactor* DeleteKvCache(Context* context, const Bytes* request, Bytes* response) override {
    return Answer<v1::DeleteKvCacheRequest>(
        delete_kv_cache_, context, request, response,
        [this](const auto& message, const Rpc& rpc) { return ToMessage(store_.DeleteCache(rpc.caller(), message.name())); });
  }

  Reactor* RenewKvCacheLease(Context* context, const Bytes* request, Bytes* response) override {
    return Answer<v1::RenewKvCacheLeaseRequest>(renew_kv_cache_lease_, context, request, response,
                                                [this](const auto& message, const Rpc& rpc) {
                                                  std::optional<absl::Duration> duration;
                                                  if (message.has_lease_duration())
                                                    duration = FromMessage(message.lease_duration());
                                                  return ToMessage(store_.RenewLease(rpc.caller(), message.name(), duration));
                                                });
  }

  Reactor* CreateSequence(Context* context, const Bytes* request, Bytes* response) override {
    return Answer<v1::CreateSequenceRequest>(
        create_sequence_, context, request, response, [this](const auto& message, const Rpc& rpc) {
          return ToMessage(store_.CreateSequence(rpc.caller(), message.parent(), message.sequence_id()));
        });
  }

  Reactor* GetSequence(Context* context, const Bytes* request, Bytes* response) override {
    return Answer<v1::GetSequenceRequest>(
        get_sequence_, context, request, response,
        [this](const auto& message, const Rpc& rpc) { return ToMessage(store_.GetSequence(rpc.caller(), message.name())); });
  }

  Reactor* ListSequences(Context* context, const Bytes* request, Bytes* response) override {
    return Answer<v1::ListSequencesRequest>(
        list_sequences_, context, request, response, [this](const auto& message, const Rpc& rpc) {
          return ToMessage(store_.ListSequences(rpc.caller(), message.parent(), ListRequestOf(message)));
        });
  }

  Reactor* DeleteSequence(Context* context, const Bytes* request, Bytes* response) override {
    return Answer<v1::DeleteSequenceRequest>(
        delete_sequence_, context, request, response,
        [this](const auto& message, const Rpc& rpc) { return ToMessage(store_.DeleteSequence(rpc.caller(), message.name())); });
  }

  Reactor* ForkSequence(Context* context, const Bytes* request, Bytes* response) override {
    return Answer<v1::ForkSequenceRequest>(
        fork_sequence_, context, request, response, [this](const auto& message, const Rpc& rpc) {
          return ToMessage(store_.ForkSequence(rpc.caller(), message.name(), message.sequence_id()));
        });
  }

  Reactor* TruncateSequence(Context* context, const Bytes* request, Bytes* response) override {
    return Answer<v1::TruncateSequenceRequest>(
        truncate_sequence_, context, request, response, [this](const auto& message, const Rpc& rpc) {
          return ToMessage(store_.TruncateSequence(rpc.caller(), message.name(), message.length()));
        });
  }

  Reactor* AppendKeyValue(Context* context, const Bytes* request, Bytes* response) override {
    auto* reactor = new DeferredUnary<engine::AppendKeyValueResult>(shared_, append_key_value_, *context, *response);
    reactor->Start(*request, &ParseAppendKeyValueRequest, engine_, &engine::Engine::AppendKeyValue);
    return reactor;
  }

  ExportReactorBase* ExportSequence(Context* context, const Bytes* request) override {
    return StartSequenceExport(shared_, export_sequence_, *context, const_cast<Bytes&>(*request), engine_);
  }

  ImportReactorBase* ImportSequence(Context* context, Bytes* response) override {
    return StartSequenceImport(shared_, import_sequence_, *context, *response, engine_);
  }

 private:
  MethodMetrics& Metrics(const char* method) { return shared_.metrics(v1::KvCacheService::service_full_name(), method); }

  template <typename Request, typename Handle>
  Reactor* Answer(MethodMetrics& metrics, Context* context, const Bytes* request, Bytes* response, Handle&& handle) {
    return AnswerNow<Request>(shared_, metrics, context, request, response, std::forward<Handle>(handle));
  }

  RpcContext& shared_;
  engine::Engine& engine_;
  KvCacheStore& store_;
  MethodMetrics& create_kv_cache_ = Metrics("CreateKvCache");
  MethodMetrics& get_kv_cache_ = Metrics("GetKvCache");
  MethodMetrics& list_kv_caches_ = Metrics("ListKvCaches");
  MethodMetrics& delete_kv_cache_ = Metrics("DeleteKvCache");
  MethodMetrics& renew_kv_cache_lease_ = Metrics("RenewKvCacheLease");
  MethodMetrics& create_sequence_ = Metrics("CreateSequence");
  MethodMetrics& get_sequence_ = Metrics("GetSequence");
  MethodMetrics& list_sequences_ = Metrics("ListSequences");
  MethodMetrics& delete_sequence_ = Metrics("DeleteSequence");
  MethodMetrics& fork_sequence_ = Metrics("ForkSequence");
  MethodMetrics& append_key_value_ = Metrics("AppendKeyValue");
  MethodMetrics& truncate_sequence_ = Metrics("TruncateSequence");
  MethodMetrics& export_sequence_ = Metrics("ExportSequence");
  MethodMetrics& import_sequence_ = Metrics("ImportSequence");
};

}  // namespace

std::unique_ptr<grpc::Service> CreateKvCacheService(RpcContext& shared, engine::Engine& engine) {
  return std::make_unique<KvCacheService>(shared, engine);
}

}  // namespace ridgeline::api
