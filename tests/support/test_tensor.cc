#include "tests/support/test_tensor.h"

#include <cstdint>
#include <random>

#include "kernels/common/data_type.h"

namespace ridgeline::support {

TestTensor::TestTensor(kernels::DataType type, std::int64_t elements)
    : type_(type),
      elements_(elements),
      buffer_(elements * kernels::ElementBytes(type), /*offset_bytes=*/kernels::ElementBytes(type)) {}

void TestTensor::FillNormal(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < elements_; ++i) Set(i, normal(random));
}

}  // namespace ridgeline::support
