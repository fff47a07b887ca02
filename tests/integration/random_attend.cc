#include "tests/integration/random_attend.h"

#include <cstdint>

#include "ridgeline/v1/attention.pb.h"
#include "ridgeline/v1/tensor.pb.h"

namespace ridgeline {

v1::AttendRequest RandomAttend(std::int64_t tokens, v1::Algorithm algorithm, std::int64_t heads, std::int64_t head_dim) {
  v1::AttendRequest request;
  std::uint64_t seed = 1;
  for (v1::Tensor* tensor :
       {request.mutable_query(), request.mutable_dense()->mutable_key(), request.mutable_dense()->mutable_value()}) {
    tensor->set_data_type(v1::DATA_TYPE_FLOAT32);
    for (const std::int64_t extent : {std::int64_t{1}, tokens, heads, head_dim}) tensor->add_shape(extent);
    tensor->mutable_random()->set_seed(seed++);
  }
  request.mutable_options()->set_algorithm(algorithm);
  return request;
}

}  // namespace ridgeline
