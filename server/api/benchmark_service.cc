#include "server/api/benchmark_service.h"

#include "absl/time/time.h"
#include "ridgeline/v1/benchmark.grpc.pb.h"
#include "server/api/data_type.h"
#include "server/api/unary.h"

namespace ridgeline::api {
namespace {

void FillRoofline(const engine::Roofline& roofline, v1::Roofline& message) {
  message.set_device(roofline.device);
  message.set_bytes_per_second(roofline.bytes_per_second);
  message.set_theoretical_bytes_per_second(roofline.theoretical_bytes_per_second);
  message.mutable_measure_time()->set_seconds(absl::ToUnixSeconds(roofline.measure_time));
  message.set_cached(roofline.cached);
  for (const engine::ComputeRoof& roof : roofline.compute_roofs) {
    v1::ComputeRoof* compute_roof = message.add_compute_roofs();
    compute_roof->set_data_type(ToMessage(roof.data_type));
    compute_roof->set_flops_per_second(roof.flops_per_second);
    compute_roof->set_theoretical_flops_per_second(roof.theoretical_flops_per_second);
    if (roofline.bytes_per_second > 0) {
      compute_roof->set_ridge_point_flops_per_byte(roof.flops_per_second / roofline.bytes_per_second);
    }
  }
}

class BenchmarkService : public v1::BenchmarkService::CallbackService {
 public:
  BenchmarkService(RpcContext& shared, engine::Engine& engine)
      : shared_(shared),
        engine_(engine),
        get_roofline_(shared.metrics(v1::BenchmarkService::service_full_name(), "GetRoofline")) {}

  grpc::ServerUnaryReactor* GetRoofline(grpc::CallbackServerContext* context, const v1::GetRooflineRequest*,
                                        v1::Roofline* response) override {
    return AnswerNow(shared_, get_roofline_, context, [&] {
      FillRoofline(engine_.roofline(), *response);
      return absl::OkStatus();
    });
  }

 private:
  RpcContext& shared_;
  engine::Engine& engine_;
  MethodMetrics& get_roofline_;
};

}  // namespace

std::unique_ptr<grpc::Service> CreateBenchmarkService(RpcContext& shared, engine::Engine& engine) {
  return std::make_unique<BenchmarkService>(shared, engine);
}

}  // namespace ridgeline::api
