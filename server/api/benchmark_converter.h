// The measuring instrument between the wire's messages and the engine's structs.
#pragma once

#include "absl/status/statusor.h"
#include "ridgeline/v1/benchmark.pb.h"
#include "server/engine/benchmark/benchmark.h"

namespace ridgeline::api {

// Names and values are the engine's to check.
engine::benchmark::Request FromMessage(const v1::BenchmarkRequest& message);

v1::BenchmarkDescription ToMessage(const engine::benchmark::Description& description);
v1::BenchmarkResponse ToMessage(const engine::benchmark::Event& event);

}  // namespace ridgeline::api
