#include "server/engine/memory_plan/check_request.h"

#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/engine/kv_cache/geometry.h"

namespace ridgeline::engine {
namespace {

using kernels::DataType;

constexpr std::int64_t kMost = std::int64_t{1} << 40;  // of any extent: far beyond what there is
constexpr std::int64_t kMostMemoryBytes = std::numeric_limits<std::int64_t>::max();

absl::Status CheckRange(std::string_view field, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return base::InvalidField(field, absl::StrCat("is ", value, "; ", least, " to ", most, " are allowed"));
}

// Sets a field that is 0 to its default, and checks it.
absl::Status Complete(std::string_view field, std::int64_t& value, std::int64_t default_value, std::int64_t most = kMost) {
  if (value == 0) value = default_value;
  return CheckRange(field, value, 1, most);
}

absl::Status CheckModel(ModelGeometry& model) {
  RIDGELINE_RETURN_IF_ERROR(CheckRange("model.layers", model.layers, 1, kv_cache::kMaxLayers));
  RIDGELINE_RETURN_IF_ERROR(CheckRange("model.hidden_size", model.hidden_size, 1, kMost));
  RIDGELINE_RETURN_IF_ERROR(CheckRange("model.query_heads", model.query_heads, 1, kMost));
  RIDGELINE_RETURN_IF_ERROR(Complete("model.kv_heads", model.kv_heads, model.query_heads));
  if (model.query_heads % model.kv_heads != 0) {
    return base::InvalidField(
        "model.kv_heads", absl::StrCat("is ", model.kv_heads, ", which does not divide ", model.query_heads, " query heads"));
  }
  if (model.head_dim == 0 && model.hidden_size < model.query_heads) {
    return base::InvalidField("model.head_dim", "is 0, and hidden_size / query_heads is none");
  }
  RIDGELINE_RETURN_IF_ERROR(Complete("model.head_dim", model.head_dim, model.hidden_size / model.query_heads));
  RIDGELINE_RETURN_IF_ERROR(Complete("model.intermediate_size", model.intermediate_size, 4 * model.hidden_size, 4 * kMost));
  RIDGELINE_RETURN_IF_ERROR(CheckRange("model.vocabulary_size", model.vocabulary_size, 0, kMost));
  RIDGELINE_RETURN_IF_ERROR(Complete("model.experts", model.experts, 1));
  RIDGELINE_RETURN_IF_ERROR(Complete("model.experts_per_token", model.experts_per_token, 1, model.experts));
  return CheckRange("model.parameters", model.parameters, 0, std::int64_t{1} << 60);
}

absl::Status CheckSharding(Sharding& sharding) {
  RIDGELINE_RETURN_IF_ERROR(Complete("sharding.data_parallel", sharding.data_parallel, 1));
  RIDGELINE_RETURN_IF_ERROR(Complete("sharding.tensor_parallel", sharding.tensor_parallel, 1));
  RIDGELINE_RETURN_IF_ERROR(Complete("sharding.pipeline_parallel", sharding.pipeline_parallel, 1));
  return CheckRange("sharding.zero_stage", sharding.zero_stage, 0, 3);
}

absl::Status CheckType(std::string_view field, DataType type, bool may_be_float8) {
  const bool is_float8 = type == DataType::kFloat8E4M3 || type == DataType::kFloat8E5M2;
  const bool is_wider = type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBFloat16;
  if (is_wider || (is_float8 && may_be_float8)) return absl::OkStatus();
  return base::InvalidField(field, absl::StrCat("is ", kernels::Name(type), "; float32, float16 and bfloat16",
                                                may_be_float8 ? ", float8_e4m3 and float8_e5m2" : "", " are allowed"));
}

}  // namespace

absl::StatusOr<MemoryPlanRequest> CheckRequest(MemoryPlanRequest request) {
  RIDGELINE_RETURN_IF_ERROR(CheckModel(request.model));
  RIDGELINE_RETURN_IF_ERROR(CheckType("data_type", request.data_type, false));
  RIDGELINE_RETURN_IF_ERROR(CheckType("kv_cache_data_type", request.kv_cache_data_type, true));
  RIDGELINE_RETURN_IF_ERROR(Complete("batch", request.batch, 1));
  RIDGELINE_RETURN_IF_ERROR(Complete("context_tokens", request.context_tokens, 2048));
  RIDGELINE_RETURN_IF_ERROR(CheckSharding(request.sharding));
  if (request.sharding.pipeline_parallel > request.model.layers) {
    return base::InvalidField(
        "sharding.pipeline_parallel",
        absl::StrCat("is ", request.sharding.pipeline_parallel, "; there are ", request.model.layers, " layers to share"));
  }
  RIDGELINE_RETURN_IF_ERROR(
      Complete("page_tokens", request.page_tokens, kv_cache::kDefaultPageTokens, kv_cache::kMaxPageTokens));
  RIDGELINE_RETURN_IF_ERROR(CheckRange("memory_bytes", request.memory_bytes, 1, kMostMemoryBytes));
  return request;
}

}  // namespace ridgeline::engine
