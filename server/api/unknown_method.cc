#include "server/api/unknown_method.h"

#include "absl/strings/str_cat.h"
#include "server/base/error.h"

namespace ridgeline::api {
namespace {

class UnknownMethodReactor : public grpc::ServerGenericBidiReactor {
 public:
  void OnDone() override { delete this; }
};

}  // namespace

UnknownMethodService::UnknownMethodService(RpcContext& shared)
    : shared_(shared), metrics_(shared.metrics("unknown", "unknown")) {}

grpc::ServerGenericBidiReactor* UnknownMethodService::CreateReactor(grpc::GenericCallbackServerContext* context) {
  Rpc rpc(shared_, metrics_, *context);
  auto* reactor = new UnknownMethodReactor;
  reactor->Finish(rpc.Close(
      base::Unsupported("", absl::StrCat("this server has no method ", context->method(), "; reflection lists what it has"))));
  return reactor;
}

}  // namespace ridgeline::api
