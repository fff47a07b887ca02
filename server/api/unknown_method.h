// Calls of methods that no service here has.
#pragma once

#include "grpcpp/generic/async_generic_service.h"
#include "server/api/rpc.h"

namespace ridgeline::api {

// Answers UNIMPLEMENTED with the same details and metadata as every other error.
class UnknownMethodService : public grpc::CallbackGenericService {
 public:
  explicit UnknownMethodService(RpcContext& shared);

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

 private:
  RpcContext& shared_;
  MethodMetrics& metrics_;
};

}  // namespace ridgeline::api
