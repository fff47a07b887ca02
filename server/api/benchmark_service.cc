#include "server/api/benchmark_service.h"

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/support/byte_buffer.h"
#include "ridgeline/v1/benchmark.grpc.pb.h"
#include "server/api/benchmark_converter.h"
#include "server/api/benchmark_stream.h"
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

using RawBenchmarkService =
    v1::BenchmarkService::WithRawCallbackMethod_ListBenchmarks<v1::BenchmarkService::WithRawCallbackMethod_Benchmark<
        v1::BenchmarkService::WithCallbackMethod_GetRoofline<v1::BenchmarkService::Service>>>;

class BenchmarkService : public RawBenchmarkService {
 public:
  BenchmarkService(RpcContext& shared, engine::Engine& engine) : shared_(shared), engine_(engine) {}

  grpc::ServerUnaryReactor* ListBenchmarks(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) override {
    return AnswerNow<v1::ListBenchmarksRequest>(
        shared_, list_benchmarks_, context, request, response,
        [&](const v1::ListBenchmarksRequest&, const Rpc&) -> absl::StatusOr<v1::ListBenchmarksResponse> {
          v1::ListBenchmarksResponse list;
          for (const auto& description : engine_.ListBenchmarks()) *list.add_benchmarks() = ToMessage(description);
          return list;
        });
  }

  BenchmarkReactorBase* Benchmark(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override {
    // gRPC made the buffer, not const, for this call.
    return StartBenchmarkStream(shared_, benchmark_, *context, const_cast<grpc::ByteBuffer&>(*request), engine_);
  }

  grpc::ServerUnaryReactor* GetRoofline(grpc::CallbackServerContext* context, const v1::GetRooflineRequest*,
                                        v1::Roofline* response) override {
    return AnswerNow(shared_, get_roofline_, context, [&] {
      FillRoofline(engine_.roofline(), *response);
      return absl::OkStatus();
    });
  }

 private:
  MethodMetrics& Metrics(const char* method) { return shared_.metrics(v1::BenchmarkService::service_full_name(), method); }

  RpcContext& shared_;
  engine::Engine& engine_;
  MethodMetrics& list_benchmarks_ = Metrics("ListBenchmarks");
  MethodMetrics& benchmark_ = Metrics("Benchmark");
  MethodMetrics& get_roofline_ = Metrics("GetRoofline");
};

}  // namespace

std::unique_ptr<grpc::Service> CreateBenchmarkService(RpcContext& shared, engine::Engine& engine) {
  return std::make_unique<BenchmarkService>(shared, engine);
}

}  // namespace ridgeline::api
